//go:build unix

package torture

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/nonce/postgres"
	"noncegate/test/lab/history"
)

// gatewayRole is whom the gateways of the axis patroni are at their database. Its password is in a file, and may change.
const gatewayRole = "noncegate"

// failoverMembers are the nodes of a run on a PostgreSQL that fails over. There is none of mode basic, which remembers nothing, so that
// nobody could notice what the store lost of it.
var failoverMembers = []member{{"w1", "worker-queue"}, {"w2", "worker-queue"}, {"w3", "worker-queue"}}

// outage is a time without a primary, by a fault.
type outage struct {
	what   string
	from   time.Duration
	writes time.Duration // how long it took until a member of Patroni took writes again
}

// startFailover makes a database of a run on Patroni's cluster.
func (c *cluster) startFailover(ctx context.Context) error {
	c.database = "t" + strings.ToLower(rand.Text())
	if err := c.onPrimary(ctx, fmt.Sprintf(`DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%s') THEN CREATE ROLE %s LOGIN; END IF; END $$`, gatewayRole, gatewayRole)); err != nil {
		return err
	}
	if err := errors.Join(c.setPassword(ctx, func() {}), c.trustCertificate()); err != nil {
		return err
	}
	if err := c.onPrimary(ctx, "CREATE DATABASE "+c.database+" OWNER "+gatewayRole); err != nil {
		return err
	}
	pool, err := pgxpool.ParseConfig(c.Patroni.URL(c.database))
	if err != nil {
		return err
	}
	if c.db, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return err
	}
	// A standby that is asked first may not know the password yet, and the driver then asks no other.
	return tries(ctx, startTimeout, 20*poll, func(ctx context.Context) error {
		s, err := postgres.Open(ctx, c.storeURL(), shards, postgres.Config{})
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// storeURL is that of the run's database, past all proxies.
func (c *cluster) storeURL() string {
	if c.Failover {
		file := func(name string) []string { return []string{filepath.Join(c.room.Dir(), name)} }
		return c.Patroni.URLAs(url.User(gatewayRole), c.database, url.Values{
			"passfile": file("passfile"), "sslmode": {"verify-full"}, "sslrootcert": file("root.crt"),
		})
	}
	return c.Postgres.URL(c.database)
}

// trustCertificate has gateways trust the certificate that the members of Patroni show now, and no other.
func (c *cluster) trustCertificate() error {
	return c.room.WriteFile("root.crt", c.Patroni.Certificate())
}

// setPassword gives the gateways' role another password, does something, and only then writes it where gateways read it.
func (c *cluster) setPassword(ctx context.Context, between func()) error {
	password := rand.Text()
	if err := c.onPrimary(ctx, fmt.Sprintf(`ALTER ROLE %s PASSWORD '%s'`, gatewayRole, password)); err != nil {
		return err
	}
	between()
	return c.room.WriteFile("passfile", fmt.Sprintf("*:*:*:%s:%s\n", gatewayRole, password))
}

// onPrimary runs a statement as the superuser, on the database postgres of whichever member takes writes.
func (c *cluster) onPrimary(ctx context.Context, sql string) error {
	return tries(ctx, startTimeout, 20*poll, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, c.Patroni.URL("postgres"))
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = conn.Exec(ctx, sql)
		return err
	})
}

// outages notes of each time without a primary for how long no client was told that anything happened.
func (c *cluster) judgeOutages() {
	var ends []time.Duration
	for i := range c.h.Calls {
		if call := &c.h.Calls[i]; call.Outcome == history.Happened && call.Kind != history.Status {
			ends = append(ends, call.End)
		}
	}
	slices.Sort(ends)
	for _, o := range c.outages {
		longest := time.Duration(0)
		for i := 1; i < len(ends); i++ {
			if ends[i] > o.from {
				longest = max(longest, ends[i]-max(ends[i-1], o.from))
			}
		}
		c.h.Faults = append(c.h.Faults, fmt.Sprintf("stall: %s: PostgreSQL took writes after %.1f s, no client was answered for %.1f s",
			o.what, o.writes.Seconds(), longest.Seconds()))
	}
}

// stopsSigner is in the line of a gateway's log that says that it stopped a signer because the store went back.
const stopsSigner = "this signer is stopped until nonce_setFloor"

// noticed lists the signers that gateways stopped.
func (c *cluster) noticed() (names []string) {
	for _, n := range c.nodes {
		for i := range n.starts {
			text, err := os.ReadFile(filepath.Join(c.room.Dir(), n.log(i+1)))
			if err != nil {
				continue // found tells of it
			}
			for line := range strings.Lines(string(text)) {
				var said struct{ Signer string }
				if strings.Contains(line, stopsSigner) && json.Unmarshal([]byte(line), &said) == nil {
					names = append(names, said.Signer)
				}
			}
		}
	}
	return names
}

// setBack notes that the store lost what it had confirmed between two moments, and waits until attend has had all signers served again.
func (b *breaker) setBack(ctx context.Context, from, to time.Duration) {
	b.mu.Lock()
	b.h.Setbacks = append(b.h.Setbacks, history.Setback{From: from, To: to})
	b.mu.Unlock()
	err := tries(ctx, 2*time.Minute, poll, func(context.Context) error {
		if !b.attended.Load() {
			return errors.New("not all signers are served")
		}
		return nil
	})
	b.note("somebody gives floors; all are served: %v", err) // who is not served is stuck, which the end tells
}

// attend does what a person does once the store has gone back, until ctx ends: whatever is refused until somebody says what is safe gets a
// floor above all that clients know to have been handed out, at each node that refuses it: a shard that moves later is refused again.
func (c *cluster) attend(ctx context.Context, w *worker) {
	w.repeat(ctx, 40*poll, func(ctx context.Context) {
		c.mu.Lock()
		back := len(c.h.Setbacks) > 0
		c.mu.Unlock()
		all := back
		for i := range signers {
			all = back && w.attendTo(ctx, signerName(i)) && all
		}
		if all {
			c.attended.Store(true)
		}
	})
}

// attendTo asks all nodes for a nonce of a signer, gives it a floor where that is asked for, and reports whether a node served it.
func (w *worker) attendTo(ctx context.Context, name string) (served bool) {
	for _, n := range w.nodes {
		done, _, err := w.do(ctx, n, false, history.Call{Kind: history.Allocate, Signer: name, Count: 1, HoldMs: holdTTL.Milliseconds()})
		if err != nil {
			continue
		}
		served = served || done[0].Outcome == history.Happened
		if strings.Contains(done[0].Detail, "raise its floor") {
			w.floors++ // so that it is another one than before
			w.do(ctx, n, false, history.Call{Kind: history.SetFloor, Signer: name, Floor: w.load.above(name) + w.floors})
		}
	}
	return served
}
