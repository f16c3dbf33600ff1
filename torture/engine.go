//go:build unix

package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"noncegate/internal/pgtest"
	"noncegate/internal/redistest"
	"noncegate/nonce/redisstore"
	"noncegate/torture/history"
)

// The times of the performance engine in a run, as short as they may be.
const (
	engineGrant     = 2 * time.Second
	engineRedisLost = 2 * time.Second
)

// persistences are how a Redis of a run writes to its disk; the seed chooses.
var persistences = [][]string{
	{"appendonly yes", "appendfsync everysec"},
	{"appendonly yes", "appendfsync always"},
	{"appendonly no"},
}

// fastSide is the Redis of a run. Nodes reach it through proxies of their own.
type fastSide struct {
	server  *redistest.Server
	replica *redistest.Server // nil: there is none

	mu     sync.Mutex          // guards what follows
	others []*redistest.Server // that took its place
	held   int                 // faults that want nobody to switch
}

// startFast starts a Redis for the cluster and keeps a list of losses in its database.
func (c *Cluster) startFast(ctx context.Context, o Options) error {
	server, err := redistest.Start(persistences[o.persistence%len(persistences)]...)
	if err != nil {
		return err
	}
	c.fast = &fastSide{server: server}
	if o.replica {
		if err := c.fast.startReplica(ctx); err != nil {
			return err
		}
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, lossTrigger)
	return err
}

// startReplica starts a replica and returns once it has what its master has.
func (f *fastSide) startReplica(ctx context.Context) error {
	host, port, pass := f.server.Master()
	var err error
	if f.replica, err = f.server.Another("appendonly no", "replicaof "+host+" "+port, "masterauth "+pass); err != nil {
		return err
	}
	options, err := redis.ParseURL(f.replica.URL())
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	for {
		said, err := client.Info(ctx, "replication").Result()
		if err == nil && strings.Contains(said, "master_link_status:up") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the replica did not synchronize: %w", errors.Join(err, context.Cause(ctx)))
		}
		lasts(ctx, poll)
	}
}

// lossTrigger writes down every loss as it is declared.
const lossTrigger = `
	CREATE TABLE torture_loss (signer text, epoch bigint, ceiling bigint, at timestamptz, grant_until timestamptz, doubt_until timestamptz);
	CREATE FUNCTION torture_lost() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO torture_loss SELECT NEW.signer, NEW.version >> 32, NEW.next_nonce, clock_timestamp(), e.grant_until, e.doubt_until
		FROM signer_nonce_engine e WHERE e.signer_id = NEW.signer_id;
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER torture_lost AFTER UPDATE OF version ON signer_nonce_state DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
	WHEN (NEW.version >> 32 > OLD.version >> 32) EXECUTE FUNCTION torture_lost();`

// withFast gives a node its way to Redis.
func (c *Cluster) withFast(n *Node, more []string) error {
	proxy, err := pgtest.NewProxy(c.fast.server.Addr())
	if err != nil {
		return err
	}
	n.redis = proxy
	url, err := proxy.URL(c.fast.server.URL())
	if err != nil {
		return err
	}
	n.args = append(n.args, "--redis="+url, "--engine-grant="+engineGrant.String(), "--engine-redis-limit=1s",
		"--engine-redis-lost-after="+engineRedisLost.String(), "--engine-observe=0s", "--engine-block-min=16", "--engine-block-max=64",
		"--flush-sla=300ms", "--flush-shards=4", "--engine-timeout=500ms", "--engine-script-limit=2s", "--engine-retry-limit=100000")
	n.args = append(n.args, more...)
	return nil
}

// close ends the servers.
func (f *fastSide) close() error {
	err := f.server.Close()
	if f.replica != nil {
		err = errors.Join(err, f.replica.Close())
	}
	for _, s := range f.others {
		err = errors.Join(err, s.Close())
	}
	return err
}

// hold keeps the cluster from being switched up again until the returned function is
// called.
func (f *fastSide) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held--
	}
}

func (f *fastSide) free() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held == 0
}

// engineState is a part of what a node says of the engine.
type engineState struct {
	State, Goal, Reason, Redis string
	Signers                    int
	Waiting                    int64 `json:"unflushed"`
	Dead                       int64 `json:"deadLetters"`
}

// ask asks the private side of a node. A refusal is an error.
func (n *Node) ask(ctx context.Context, method, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.admin+path, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// switchTo asks for a state of the engine, at each node that has Redis until one does it.
func (c *Cluster) switchTo(ctx context.Context, to string) (err error) {
	for _, n := range c.nodes {
		if n.redis == nil {
			continue
		}
		if err = n.ask(ctx, http.MethodPost, "/engine/switch", fmt.Sprintf(`{"to":%q,"force":true}`, to), nil); err == nil {
			return nil
		}
	}
	return err
}

// engineIs is what the first node says that answers.
func (c *Cluster) engineIs(ctx context.Context) (s engineState, err error) {
	for _, n := range c.nodes {
		if n.redis == nil {
			continue
		}
		if err = n.ask(ctx, http.MethodGet, "/engine", "", &s); err == nil {
			return s, nil
		}
	}
	return s, err
}

// engineWait bounds the way to a state of the engine on a machine that is busy.
const engineWait = 30 * time.Second

// awaitEngine waits until the engine is as is wants it, and asks for a state meanwhile
// where to is not "".
func (c *Cluster) awaitEngine(ctx context.Context, to string, is func(*engineState) bool) error {
	ctx, cancel := context.WithTimeout(ctx, engineWait)
	defer cancel()
	for {
		s, err := c.engineIs(ctx)
		if err == nil && is(&s) {
			return nil
		}
		var refused error
		if err == nil && to != "" {
			refused = c.switchTo(ctx, to)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the engine is %+v: %w", s, errors.Join(err, refused, ctx.Err()))
		}
		lasts(ctx, 20*poll)
	}
}

// up brings the cluster to PERFORMANCE.
func (c *Cluster) up(ctx context.Context) error {
	return c.awaitEngine(ctx, "performance", func(s *engineState) bool { return s.State == "PERFORMANCE" })
}

// keepUp switches up again whenever the engine has been left, until ctx ends.
func (c *Cluster) keepUp(ctx context.Context) {
	for ctx.Err() == nil {
		lasts(ctx, 300*time.Millisecond)
		if s, err := c.engineIs(ctx); err == nil && c.fast.free() && (s.State == "RELIABLE" || s.State == "DEGRADED") {
			_ = c.switchTo(ctx, "performance") // refused while it is too early
		}
	}
}

// settleEngine waits until everything is flushed and compares Redis with the database,
// brings every signer back and reads which were lost meanwhile. What is wrong it returns
// as violations.
func (c *Cluster) settleEngine(ctx context.Context, h *history.History) (found []history.Violation, err error) {
	wrong := func(rule history.Rule, format string, args ...any) {
		found = append(found, history.Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
	}
	if err := c.awaitEngine(ctx, "", func(s *engineState) bool { return s.Waiting == 0 }); err != nil {
		wrong(history.Stuck, "not everything was flushed: %v", err)
	}
	if said := c.compare(ctx); said != "" {
		wrong(history.Different, "Redis and the database are not equal: %s", said)
	}
	back := func(s *engineState) bool { return s.State == "RELIABLE" && s.Signers == 0 }
	if err := c.awaitEngine(ctx, "reliable", back); err != nil {
		wrong(history.Stuck, "not every signer returned: %v", err)
	}
	if s, err := c.engineIs(ctx); err == nil && s.Dead > 0 {
		wrong(history.Alarm, "%d dead letters", s.Dead)
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	h.Losses, err = readLosses(ctx, conn)
	return found, err
}

// compare lets a node compare Redis with the database until nothing is behind, and
// says what differs.
func (c *Cluster) compare(ctx context.Context) (different string) {
	type report struct {
		Equal, Different, Behind, Busy int
		Differences                    []json.RawMessage
	}
	var elsewhere [2]bool // the node's last answer: another Redis is there
	until := time.Now().Add(engineWait / 2)
	for try := 0; ctx.Err() == nil; try++ {
		var r report
		err := c.nodes[try%2].ask(ctx, http.MethodPost, "/engine/reconcile", "", &r)
		elsewhere[try%2] = err != nil && strings.Contains(err.Error(), redisstore.ErrIdentity.Error())
		switch {
		case err == nil && r.Different == 0 && r.Busy == 0: // what is behind is no copy that anybody uses
			return ""
		case err != nil && strings.Contains(err.Error(), "refused"):
			return "" // the engine is left: there is nothing to compare
		case elsewhere == [2]bool{true, true} && time.Now().After(until):
			return "" // connections of both nodes lead to the old server and to the new one: no comparison is of one of them
		case time.Now().After(until):
			return fmt.Sprintf("%+v %v", r, err)
		}
		lasts(ctx, 20*poll)
	}
	return ""
}

func readLosses(ctx context.Context, conn *pgx.Conn) ([]history.Loss, error) {
	rows, err := conn.Query(ctx, `SELECT signer, epoch, ceiling, at, grant_until, doubt_until FROM torture_loss ORDER BY signer, epoch`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (history.Loss, error) {
		var l history.Loss
		var at, grant, doubt time.Time
		err := row.Scan(&l.Signer, &l.Epoch, &l.Ceiling, &at, &grant, &doubt)
		l.At, l.GrantUntil, l.DoubtUntil = at.UnixMilli(), grant.UnixMilli(), doubt.UnixMilli()
		return l, err
	})
}
