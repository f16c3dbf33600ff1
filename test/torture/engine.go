//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/test/lab/history"
	"noncegate/test/lab/redistest"
)

// The times of the performance engine in a run. The grant is longer than a lease and the time until Redis counts as lost together,
// so that who takes a shard over can declare a loss while the old owner still hands out.
const (
	engineGrant     = 3 * time.Second
	engineRedisLost = 1200 * time.Millisecond
)

// engineFlags are the settings of nodes that have a Redis. Every other seed rehearses.
func engineFlags(seed uint64) []string {
	rehearsal := time.Duration(seed%2) * 200 * time.Millisecond
	return []string{
		"--engine-grant=" + engineGrant.String(), "--redis-lost-after=" + engineRedisLost.String(),
		"--engine-timeout=500ms", "--ship-sla=300ms", "--engine-rehearsal=" + rehearsal.String(),
	}
}

// persistences are how a Redis of a run writes to its disk; the seed chooses.
var persistences = [][]string{
	{"appendonly yes", "appendfsync everysec"},
	{"appendonly yes", "appendfsync always"},
	{"appendonly no"}, // nothing, or with SAVE a snapshot
}

// redisSide is the Redis of a run. Nodes reach it through proxies of their own.
type redisSide struct {
	server  *redistest.Server
	replica *redistest.Server   // nil: there is none
	others  []*redistest.Server // that took its place
	held    atomic.Int32        // faults that want nobody to switch up
	lost    int64               // shards, once all is settled
}

// startRedis starts a Redis for the cluster, perhaps with a replica that has what its master has, and keeps a list of losses in the
// cluster's database.
func (c *cluster) startRedis(ctx context.Context) error {
	server, err := redistest.Start(persistences[c.Seed%uint64(len(persistences))]...)
	if err != nil {
		return err
	}
	r := &redisSide{server: server}
	c.engineRedis = r
	if c.has(func(f Fault) bool { return f.Replica }) {
		host, port, pass := server.Master()
		if r.replica, err = server.Another("appendonly no", "replicaof "+host+" "+port, "masterauth "+pass); err != nil {
			return err
		}
		client := r.replica.Dial()
		defer client.Close()
		err := tries(ctx, startTimeout, poll, func(ctx context.Context) error {
			said, err := client.Info(ctx, "replication").Result()
			if err == nil && !strings.Contains(said, "master_link_status:up") {
				err = errors.New("the replica did not synchronize")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err = c.db.Exec(ctx, engineTriggers)
	return err
}

// engineTriggers write down every loss of a shard as it is declared, every signer that is mended because of one, and why the engine
// was left: the row of before and of after. Mode basic mends and hands out in one statement.
const engineTriggers = `
	CREATE TABLE torture_log (kind text, at bigint, old jsonb, new jsonb);
	CREATE FUNCTION torture_log() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO torture_log VALUES (TG_ARGV[0], store_millis(), to_jsonb(OLD), to_jsonb(NEW));
		RETURN NULL;
	END $$;
	CREATE TRIGGER torture_lost AFTER UPDATE ON shard FOR EACH ROW WHEN (NEW.epoch > OLD.epoch)
		EXECUTE FUNCTION torture_log('lost');
	CREATE TRIGGER torture_mended AFTER UPDATE ON signer FOR EACH ROW WHEN (NEW.epoch > OLD.epoch AND OLD.ceiling > 0)
		EXECUTE FUNCTION torture_log('mended');
	CREATE TRIGGER torture_left AFTER UPDATE ON gateway_engine FOR EACH ROW WHEN (NEW.degraded)
		EXECUTE FUNCTION torture_log('left');
	CREATE VIEW torture_loss AS SELECT at, r.* FROM torture_log, jsonb_populate_record(NULL::shard, new) r WHERE kind = 'lost';
	CREATE VIEW torture_mended AS SELECT r.*, b.epoch AS was, greatest(b.next_nonce, b.ceiling) AS doubtful
		FROM torture_log, jsonb_populate_record(NULL::signer, new) r, jsonb_populate_record(NULL::signer, old) b WHERE kind = 'mended';`

func (r *redisSide) close() (err error) {
	for _, s := range append(r.others, r.server, r.replica) {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// engineState is a part of what a node says of the engine.
type engineState struct {
	State, Goal, Reason, Redis string
	Generation                 int64
	Here                       []struct {
		Shard, UnshippedSigners int
		Trouble                 string
	} `json:"logsHere"`
}

// shipped reports whether the node's logs have nothing that the rows do not.
func (s *engineState) shipped() bool {
	for _, l := range s.Here {
		if l.UnshippedSigners > 0 || l.Trouble != "" {
			return false
		}
	}
	return true
}

// ask asks the private side of a node. A refusal is an error.
func (n *node) ask(ctx context.Context, method, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, n.admin()+"/admin/v1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true // the node may not live long
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// switchTo asks for a state of the engine, at each node that has Redis until one does it.
func (c *cluster) switchTo(ctx context.Context, to string) (err error) {
	for _, n := range c.nodes {
		if n.redis == nil {
			continue
		}
		var is engineState
		if err = n.ask(ctx, http.MethodGet, "/engine", "", &is); err != nil {
			continue
		}
		order := fmt.Sprintf(`{"to":%q,"generation":%d}`, to, is.Generation)
		if err = n.ask(ctx, http.MethodPost, "/engine/switch", order, nil); err == nil {
			return nil
		}
	}
	return err
}

// engineIs is what each node that has Redis says. Those that run must all answer.
func (c *cluster) engineIs(ctx context.Context) (all []engineState, err error) {
	for _, n := range c.nodes {
		if n.redis == nil || n.admin() == "" || n.basic.Load() {
			continue
		}
		var s engineState
		if err = n.ask(ctx, http.MethodGet, "/engine", "", &s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// engineWait bounds the way to a state of the engine on a machine that is busy.
const engineWait = 30 * time.Second

// awaitEngine waits until the engine is as is wants it at every node, and asks for a state meanwhile where to is not "".
func (c *cluster) awaitEngine(ctx context.Context, to string, is func(*engineState) bool) error {
	return tries(ctx, engineWait, 20*poll, func(ctx context.Context) error {
		all, err := c.engineIs(ctx)
		if err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(s engineState) bool { return !is(&s) }) {
			return nil
		}
		if err == nil && to != "" {
			err = c.switchTo(ctx, to)
		}
		return errors.Join(fmt.Errorf("the engine is %+v", all), err)
	})
}

func (c *cluster) up(ctx context.Context) error {
	return c.awaitEngine(ctx, "performance", func(s *engineState) bool { return s.State == "PERFORMANCE" })
}

// keepUp switches up again whenever the engine has been left, until ctx ends.
func (c *cluster) keepUp(ctx context.Context) {
	for ctx.Err() == nil {
		lasts(ctx, 300*time.Millisecond)
		all, err := c.engineIs(ctx)
		left := func(s engineState) bool { return s.State == "RELIABLE" || s.State == "DEGRADED" }
		if err == nil && c.engineRedis.held.Load() == 0 && slices.ContainsFunc(all, left) {
			_ = c.switchTo(ctx, "performance") // refused while Redis is not well
		}
	}
}

// settleEngine waits until everything is shipped and compares the logs with what the nodes remember, brings every shard back and reads
// what was lost meanwhile.
func (c *cluster) settleEngine(ctx context.Context) error {
	if err := c.awaitEngine(ctx, "", (*engineState).shipped); err != nil {
		c.wrong(history.Stuck, "", "not everything was shipped: %v", err)
	}
	if err := c.compare(ctx); err != nil {
		c.wrong(history.Different, "", "a log and the memory of its owner are not equal: %v", err)
	}
	if err := c.awaitEngine(ctx, "reliable", func(s *engineState) bool { return s.State == "RELIABLE" }); err != nil {
		c.wrong(history.Stuck, "", "not every shard returned: %v", err)
	}
	// Why the engine was left, and which signers were mended, each with the losses of its shard until then.
	lost := c.db.QueryRow(ctx, `SELECT count(*) FROM torture_loss`).Scan(&c.engineRedis.lost)
	rows, _ := c.db.Query(ctx, `SELECT new->>'reason' FROM torture_log WHERE kind = 'left' ORDER BY at`) // CollectRows says what failed
	left, leftErr := pgx.CollectRows(rows, pgx.RowTo[string])
	rows, _ = c.db.Query(ctx, `
		SELECT m.signer, m.epoch, m.doubtful, max(l.fencing_token), min(l.at), max(l.grant_until), max(l.doubt_until)
		FROM torture_mended m JOIN torture_loss l ON l.shard_id = m.shard_id AND l.epoch > m.was AND l.epoch <= m.epoch
		GROUP BY m.signer, m.epoch, m.doubtful ORDER BY m.signer, m.epoch`)
	losses, lossErr := pgx.CollectRows(rows, pgx.RowToStructByPos[history.Loss])
	c.h.Left, c.h.Losses = left, losses
	return errors.Join(lost, leftErr, lossErr)
}

// compare lets every node compare its logs with its memory until nothing is different, and says what is. Work that is under way
// meanwhile may look like a difference.
func (c *cluster) compare(ctx context.Context) (err error) {
	for _, n := range c.nodes[:2] {
		err = errors.Join(err, tries(ctx, engineWait/2, 20*poll, func(ctx context.Context) error {
			var r struct {
				Equal, Different int
				Differences      []json.RawMessage
			}
			err := n.ask(ctx, http.MethodPost, "/engine/reconcile", "{}", &r)
			if err == nil && r.Different > 0 {
				err = fmt.Errorf("%s: %+v", n.id, r)
			}
			return err
		}))
	}
	return err
}

// outlastDoubt returns when nothing that was lost is in doubt any more, and some of it has been handed out again.
func (c *cluster) outlastDoubt(ctx context.Context) error {
	var left int64
	err := c.db.QueryRow(ctx, `SELECT coalesce(max(doubt_until) - store_millis(), 0) FROM torture_loss`).Scan(&left)
	if left > 0 {
		lasts(ctx, time.Duration(left)*time.Millisecond+grace+calmAfter)
	}
	return err
}

// judgeLosses looks whether what was lost, and that the engine was left, has a reason among the faults. While nothing was taken from
// Redis, nobody may find that something is missing.
func (c *cluster) judgeLosses() {
	forgets := c.has(func(f Fault) bool { return f.Forgets })
	loses := forgets || c.has(func(f Fault) bool { return f.Loses })
	if n := c.engineRedis.lost; n > 0 && !loses {
		c.wrong(history.Alarm, "", "%d shards, %d signers, were lost for no reason", n, len(c.h.Losses))
	}
	for _, reason := range c.h.Left {
		if !forgets && strings.Contains(reason, nonce.ErrLogLost.Error()) {
			c.wrong(history.Alarm, "", "the engine was left for no reason: %s", reason)
		}
	}
}
