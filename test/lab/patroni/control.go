//go:build unix

package patroni

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"noncegate/test/lab/guarded"
)

const (
	// patience bounds what the cluster is waited for: on a busy machine copies and elections take their time.
	patience = 4 * time.Minute
	poll     = 100 * time.Millisecond
)

// Mode says what an acknowledged commit has waited for.
type Mode string

// The modes of replication.
const (
	Asynchronous Mode = "asynchronous"
	Synchronous  Mode = "synchronous_mode" // the leader goes on alone when no standby is there
	Strict       Mode = "synchronous_mode_strict"
)

// SetMode sets the mode and waits until it is in force. With asynchronous replication a standby is promoted however much it lacks, so that
// a test decides what is lost.
func (c *Cluster) SetMode(ctx context.Context, mode Mode) error {
	lag := 1 << 20
	if mode == Asynchronous {
		lag = 1 << 30
	}
	err := c.tries(ctx, func(ctx context.Context) error {
		return c.any(ctx, http.MethodPatch, "/config", map[string]any{
			"synchronous_mode": mode != Asynchronous, "synchronous_mode_strict": mode == Strict, "maximum_lag_on_failover": lag,
		}, nil)
	})
	if err != nil {
		return fmt.Errorf("set %s: %w", mode, err)
	}
	return c.AwaitHealthy(ctx)
}

// Switchover has another member become the leader, in order, and returns when Patroni says that it is.
func (c *Cluster) Switchover(ctx context.Context) error {
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	return leader.ask(ctx, http.MethodPost, "/switchover", map[string]string{"leader": leader.Name}, nil)
}

// AwaitLeader waits until a member is the leader and takes writes, and returns it.
func (c *Cluster) AwaitLeader(ctx context.Context) (leader *Member, err error) {
	err = c.tries(ctx, func(ctx context.Context) (err error) {
		leader, _, err = c.view(ctx)
		if err != nil {
			return err
		}
		var readOnly string
		if err := leader.Ask(ctx, &readOnly, `SHOW transaction_read_only`); err != nil || readOnly != "off" {
			return errors.Join(fmt.Errorf("%s does not take writes", leader.Name), err)
		}
		return nil
	})
	return leader, err
}

// AwaitHealthy waits until there is a leader that all other members follow, with all that it has committed, and one of them
// synchronously where the mode says so. Patroni says so too: it promotes no standby that it has not named synchronous before.
func (c *Cluster) AwaitHealthy(ctx context.Context) error {
	return c.tries(ctx, func(ctx context.Context) error {
		leader, all, err := c.view(ctx)
		if err != nil {
			return err
		}
		var mode struct {
			Synchronous bool `json:"synchronous_mode"`
		}
		if err := leader.ask(ctx, http.MethodGet, "/config", nil, &mode); err != nil {
			return err
		}
		var follow, synchronous int
		err = leader.Ask(ctx, &follow, `SELECT count(*) FROM pg_stat_replication
			WHERE state = 'streaming' AND application_name LIKE 'db%' AND replay_lsn >= pg_current_wal_lsn() - 65536`)
		if err == nil {
			err = leader.Ask(ctx, &synchronous, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`)
		}
		named := slices.ContainsFunc(all, func(s state) bool { return s.Role == "sync_standby" })
		if err == nil && (len(all) != hosts || follow != hosts-1 || (synchronous > 0) != mode.Synchronous || named != mode.Synchronous) {
			err = fmt.Errorf("%d of %d members are there, %d follow %s, %d of them synchronously; Patroni names one: %t",
				len(all), hosts, follow, leader.Name, synchronous, named)
		}
		return err
	})
}

// AwaitReplicated waits until all standbys have on disk what a leader has confirmed until now.
func (c *Cluster) AwaitReplicated(ctx context.Context, leader *Member) error {
	var at string
	if err := leader.Ask(ctx, &at, `SELECT pg_current_wal_lsn()::text`); err != nil {
		return err
	}
	return c.tries(ctx, func(ctx context.Context) error {
		var all bool
		err := leader.Ask(ctx, &all, `SELECT count(*) = $1 FROM pg_stat_replication WHERE flush_lsn >= $2::pg_lsn`, hosts-1, at)
		if err == nil && !all {
			err = errors.New("a standby lacks something")
		}
		return err
	})
}

// tries does something again and again for as long as the cluster is waited for.
func (c *Cluster) tries(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := guarded.Retry(ctx, poll, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, guarded.StartTimeout/2) // of one try: a paused member answers nothing
		defer cancel()
		return do(ctx)
	})
	if err != nil {
		err = fmt.Errorf("the cluster of Patroni: %w\n%s", err, c.tails())
	}
	return err
}

func (c *Cluster) tails() (text string) {
	for _, m := range c.Members {
		log := m.Log()
		text += fmt.Sprintf("%s: …%s\n", m.Name, log[max(0, len(log)-1500):])
	}
	return text
}

// state is what Patroni says of a member.
type state struct{ Name, Role, State string }

// view is who leads, and the members that run, by the word of any that answers.
func (c *Cluster) view(ctx context.Context) (leader *Member, running []state, err error) {
	var cluster struct{ Members []state }
	if err := c.any(ctx, http.MethodGet, "/cluster", nil, &cluster); err != nil {
		return nil, nil, err
	}
	for _, s := range cluster.Members {
		if s.State != "running" && s.State != "streaming" {
			continue
		}
		running = append(running, s)
		for _, m := range c.Members {
			if m.Name == s.Name && s.Role == "leader" {
				leader = m
			}
		}
	}
	if leader == nil {
		err = fmt.Errorf("there is no leader among %v", cluster.Members)
	}
	return leader, running, err
}

// any asks the members one after the other until one answers.
func (c *Cluster) any(ctx context.Context, method, path string, body, into any) (err error) {
	for _, m := range c.Members {
		one, cancel := context.WithTimeout(ctx, guarded.StartTimeout/12) // a paused one takes the connection and says nothing
		failed := m.ask(one, method, path, body, into)
		cancel()
		if failed == nil {
			return nil
		}
		err = errors.Join(err, failed)
	}
	return err
}

// ask asks Patroni of a member.
func (m *Member) ask(ctx context.Context, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+m.restAddr()+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.SetBasicAuth("patroni", m.c.password)
	return m.c.send(req, into)
}

func (c *Cluster) send(req *http.Request, into any) error {
	req.Close = true // members come and go
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, answer)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return err
}

// Backup copies the leader by pg_basebackup into the folder, where Restore finds it.
func (c *Cluster) Backup(ctx context.Context) error {
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(c.backup()); err != nil {
		return err
	}
	return c.run("pg_basebackup", "--pgdata="+c.backup(), "--dbname="+leader.urlAs("replicator", "postgres"), "--wal-method=stream", "--checkpoint=fast", "--no-sync")
}

func (c *Cluster) backup() string { return filepath.Join(c.room.Dir(), "backup") }

// Restore sets the whole cluster back to its last backup: all members end, what etcd has of the cluster is deleted, the first member starts
// on the backup, and the others are copied from it.
func (c *Cluster) Restore(ctx context.Context) error {
	for _, m := range c.Members {
		if err := m.Kill(); err != nil {
			return err
		}
		if err := os.RemoveAll(m.dataDir()); err != nil {
			return err
		}
	}
	if err := os.Rename(c.backup(), c.Members[0].dataDir()); err != nil {
		return err
	}
	prefix := "/service/noncegate/"
	keys, err := json.Marshal(map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(prefix)), "range_end": base64.StdEncoding.EncodeToString([]byte("/service/noncegate0"))})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.client[0]+"/v3/kv/deleterange", bytes.NewReader(keys))
	if err != nil {
		return err
	}
	if err := c.send(req, nil); err != nil {
		return err
	}
	for i, m := range c.Members {
		if err := m.Start(); err != nil {
			return err
		}
		if i == 0 {
			if _, err := c.AwaitLeader(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
