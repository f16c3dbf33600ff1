//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/test/lab/patroni"
)

// failoverFaults are those of a PostgreSQL that fails over. Each returns when all members are there again.
func failoverFaults() []Fault {
	return []Fault{
		{Name: "switchover", Of: "patroni", do: switchOver},
		{Name: "leader-kill", Of: "patroni", do: killLeader},
		{Name: "leader-pause", Of: "patroni", do: pauseLeader},
		{Name: "etcd-away", Of: "patroni", do: loseEtcd},
		{Name: "standby-kill", Of: "patroni", do: killStandby},
		{Name: "replication-cut", Of: "patroni", SetsBack: true, do: cutReplication},
		{Name: "read-only", Of: "patroni", do: makeReadOnly},
		{Name: "password", Of: "patroni", do: changePassword},
		{Name: "restore", Of: "patroni", SetsBack: true, do: restoreBackup},
		{Name: "certificate", Of: "patroni", do: changeCertificate},
		{Name: "strict", Of: "patroni", do: beStrict},
	}
}

// without has the primary go away by something, and notes how long it takes until a member takes writes.
func (b *breaker) without(ctx context.Context, what string, do func(leader *patroni.Member) error) (was, is *patroni.Member, err error) {
	if was, err = b.Patroni.AwaitLeader(ctx); err != nil {
		return nil, nil, err
	}
	b.note("%s of %s", what, was.Name)
	from := time.Since(b.began)
	if err = do(was); err != nil {
		return nil, nil, err
	}
	if is, err = b.Patroni.AwaitLeader(ctx); err != nil {
		return nil, nil, err
	}
	took := time.Since(b.began) - from
	b.note("%s takes writes", is.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outages = append(b.outages, outage{what, from, took})
	return was, is, nil
}

// healthy waits until all members are there.
func (b *breaker) healthy(ctx context.Context) error {
	err := b.Patroni.AwaitHealthy(ctx)
	b.note("all members are there: %v", err)
	return err
}

func switchOver(ctx context.Context, b *breaker) error {
	_, _, err := b.without(ctx, "switchover", func(*patroni.Member) error { return b.Patroni.Switchover(ctx) })
	return errors.Join(err, b.healthy(ctx))
}

// killLeader ends the leader as a host that loses power, and starts it again once another one leads.
func killLeader(ctx context.Context, b *breaker) error {
	was, _, err := b.without(ctx, "kill -9", (*patroni.Member).Kill)
	if err != nil {
		return err
	}
	lasts(ctx, b.between(0, 3*time.Second))
	return errors.Join(was.Start(), b.healthy(ctx))
}

// pauseLeader stops the leader where it stands until another one leads, and lets it go on as if nothing had been.
func pauseLeader(ctx context.Context, b *breaker) error {
	was, _, err := b.without(ctx, "SIGSTOP", (*patroni.Member).Pause)
	if was == nil {
		return err
	}
	lasts(ctx, b.between(time.Second, 5*time.Second))
	b.note("SIGCONT %s", was.Name)
	return errors.Join(err, was.Resume(), b.healthy(ctx))
}

// loseEtcd ends two of three members of etcd until the leader has given up, and a while longer.
func loseEtcd(ctx context.Context, b *breaker) error {
	lost := []int{0, 1, 2}
	stays := b.rnd.IntN(len(lost))
	lost = append(lost[:stays], lost[stays+1:]...)
	_, _, err := b.without(ctx, "etcd's majority ends", func(leader *patroni.Member) error {
		for _, i := range lost {
			if err := b.Patroni.KillEtcd(i); err != nil {
				return err
			}
		}
		err := tries(ctx, startTimeout, 20*poll, func(ctx context.Context) error {
			var recovers bool
			if err := leader.Ask(ctx, &recovers, `SELECT pg_is_in_recovery()`); err == nil && !recovers {
				return fmt.Errorf("%s still leads", leader.Name)
			}
			return nil
		})
		b.note("the leader has given up: %v", err)
		lasts(ctx, b.between(time.Second, 4*time.Second))
		for _, i := range lost {
			err = errors.Join(err, b.Patroni.StartEtcd(i))
		}
		return err
	})
	return errors.Join(err, b.healthy(ctx))
}

// killStandby ends the standby that the leader's commits wait for.
func killStandby(ctx context.Context, b *breaker) error {
	leader, err := b.Patroni.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	var name string
	if err := leader.Ask(ctx, &name, `SELECT application_name FROM pg_stat_replication WHERE sync_state = 'sync' LIMIT 1`); err != nil {
		return err
	}
	for _, m := range b.Patroni.Members {
		if m.Name == name {
			b.note("kill -9 of the synchronous standby %s", name)
			err = m.Kill()
			lasts(ctx, b.between(3*time.Second, 8*time.Second))
			return errors.Join(err, m.Start(), b.healthy(ctx))
		}
	}
	return fmt.Errorf("no member is called %s", name)
}

// cutReplication has the leader confirm for a moment what no standby has, and then die. A moment that is shorter than a third of a lease
// is one that no heartbeat may fall into.
func cutReplication(ctx context.Context, b *breaker) error {
	if err := b.Patroni.SetMode(ctx, patroni.Asynchronous); err != nil {
		return err
	}
	leader, err := b.Patroni.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	from := time.Since(b.began)
	if err := b.Patroni.AwaitReplicated(ctx, leader); err != nil { // all that was confirmed until now
		return err
	}
	b.note("the standbys hear nothing of %s", leader.Name)
	leader.Replication.Refuse()
	lasts(ctx, []time.Duration{b.between(30*time.Millisecond, leaseTTL/4), b.ttls(0.5, 3)}[b.rnd.IntN(2)])
	to := from
	_, _, err = b.without(ctx, "kill -9, asynchronous,", func(m *patroni.Member) error {
		err := m.Kill()
		to = time.Since(b.began)
		return err
	})
	if err != nil {
		return err
	}
	b.setBack(ctx, from, to)
	leader.Replication.Forward()
	return errors.Join(leader.Start(), b.healthy(ctx), b.Patroni.SetMode(ctx, patroni.Synchronous))
}

// makeReadOnly has the primary refuse writes for a while (25006), without a failover.
func makeReadOnly(ctx context.Context, b *breaker) error {
	leader, err := b.Patroni.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	b.note("%s is read-only", leader.Name)
	err = errors.Join(leader.Exec(ctx, `ALTER SYSTEM SET default_transaction_read_only = on`), leader.Exec(ctx, `SELECT pg_reload_conf()`))
	lasts(ctx, b.between(5*time.Second, 20*time.Second))
	err = errors.Join(err, leader.Exec(ctx, `ALTER SYSTEM RESET default_transaction_read_only`), leader.Exec(ctx, `SELECT pg_reload_conf()`))
	b.note("no more: %v", err)
	return errors.Join(err, b.healthy(ctx))
}

// endSessions has the gateways connect anew.
func (b *breaker) endSessions(ctx context.Context) {
	err := b.onPrimary(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '`+gatewayRole+`'`)
	b.note("sessions of the gateways are ended: %v", err)
}

// changePassword changes the password of the gateways' role and ends their sessions, before and after gateways can read the new one.
func changePassword(ctx context.Context, b *breaker) error {
	b.note("another password")
	err := b.setPassword(ctx, func() {
		b.endSessions(ctx)
		lasts(ctx, b.ttls(0.2, 2))
	})
	b.endSessions(ctx)
	return err
}

// changeCertificate changes the certificate of all members, and its authority, and ends the gateways' sessions, before and after they can
// read the new one.
func changeCertificate(ctx context.Context, b *breaker) error {
	b.note("another certificate")
	err := b.Patroni.ChangeCertificate(ctx)
	b.endSessions(ctx)
	lasts(ctx, b.ttls(0.2, 2))
	err = errors.Join(err, b.trustCertificate())
	b.endSessions(ctx)
	return err
}

// beStrict has commits wait for standbys that are all away, and then the leader die.
func beStrict(ctx context.Context, b *breaker) error {
	if err := b.Patroni.SetMode(ctx, patroni.Strict); err != nil {
		return err
	}
	leader, err := b.Patroni.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	standbys := slices.DeleteFunc(slices.Clone(b.Patroni.Members), func(m *patroni.Member) bool { return m == leader })
	b.note("kill -9 of all standbys of %s, strict: commits wait", leader.Name)
	for _, m := range standbys {
		err = errors.Join(err, m.Kill())
	}
	lasts(ctx, b.between(3*time.Second, 8*time.Second))
	for _, m := range standbys {
		err = errors.Join(err, m.Start())
	}
	if err := errors.Join(err, b.healthy(ctx)); err != nil {
		return err
	}
	return errors.Join(killLeader(ctx, b), b.Patroni.SetMode(ctx, patroni.Synchronous))
}

// restoreBackup sets the whole database back to a backup of some seconds ago.
func restoreBackup(ctx context.Context, b *breaker) error {
	from := time.Since(b.began)
	if err := b.Patroni.Backup(ctx); err != nil {
		return err
	}
	b.note("pg_basebackup is done")
	lasts(ctx, b.ttls(1, 4))
	to := from
	_, _, err := b.without(ctx, "restore in place", func(*patroni.Member) (err error) {
		for _, m := range b.Patroni.Members {
			err = errors.Join(err, m.Kill())
		}
		to = time.Since(b.began)
		return errors.Join(err, b.Patroni.Restore(ctx))
	})
	if err != nil {
		return err
	}
	b.setBack(ctx, from, to)
	return b.healthy(ctx)
}
