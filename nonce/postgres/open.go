package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/nonce"
)

var _ nonce.Store = (*Store)(nil)

// Config are the settings of a Store.
type Config struct {
	// MaxConns bounds the pool. Mode worker-queue uses one for each worker that
	// commits and a few for reads; mode basic one for each request under way.
	// 0: 16. pool_max_conns in the URL wins.
	MaxConns int
	// URL gives the URL anew for each connection, so that a password may change; nil: it is
	// that of Open, whose files, such as passfile, are read anew.
	URL func() (string, error)
	Log *slog.Logger // nil: discarded
}

// Store is a database in which all that lives of a signer is one row, and a shard of signers has
// one owner. Its methods may be called from many goroutines.
type Store struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	shards int

	totals                 nonce.TotalsWalk
	pruned, prunedRequests pruning

	locksUntil atomic.Int64 // unix nanoseconds; until then commits leave locked rows out

	generation atomic.Uint64
	mu         sync.Mutex    // guards what follows
	identity   string        // system identifier and timeline of the last new connection
	databaseID string        // see DatabaseID
	beats      *pgxpool.Pool // of one connection, for heartbeats alone; nil: there are none

	resets     uint64         // how often the pools were reset; a connection says of which it is (resetKey)
	backends   map[int32]bool // process ids of the servers that our connections to a pooler have
	noTimeline sync.Once      // logs that the timeline is not told
}

// runtimeParams are set on every connection, whatever the server's defaults.
//
// The planner settings fix the plan of each statement: nested loops into primary
// keys. A generic plan made while the tables are empty would else keep a full scan
// when they have grown. A high cost of each row read makes it never worth while to
// read a table from end to end, be it by an index.
func runtimeParams() map[string]string {
	return map[string]string{
		"application_name":                    "noncegate",
		"default_transaction_isolation":       "read committed",
		"synchronous_commit":                  "on",
		"lock_timeout":                        strconv.Itoa(lockWait),
		"idle_in_transaction_session_timeout": "10000",
		"statement_timeout":                   "30000",
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
		"cpu_tuple_cost":                      "1",
		"random_page_cost":                    "0.1",
		"jit":                                 "off",
	}
}

// Open connects to the database of url, checks that it is one to be trusted with a commit (a
// server with fsync=off is refused), migrates it, and makes so many shards in a new one; 0 is as
// many as there are, or DefaultShards. The error names what is wrong in a sentence; it is a
// *SchemaError when the schema is at fault and not the connection.
func Open(ctx context.Context, url string, shards int, cfg Config) (*Store, error) {
	if cfg.URL == nil {
		cfg.URL = func() (string, error) { return url, nil }
	}
	pc, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), backends: make(map[int32]bool)}
	if s.pool, err = s.connect(ctx, pc, cfg); err != nil {
		return nil, err
	}
	if err = s.Ping(ctx); err == nil {
		err = s.prepare(ctx, shards, cfg)
	}
	if err != nil {
		return nil, errors.Join(poolerOr(err), s.Close())
	}
	return s, nil
}

// connect makes a pool, whose connections are looked at when they are made. Each is made by
// the settings as they are then: a password may have changed.
func (s *Store) connect(ctx context.Context, pc *pgxpool.Config, cfg Config) (*pgxpool.Pool, error) {
	pc.AfterConnect, pc.BeforeClose = s.inspect, s.forget
	s.watch(pc.ConnConfig)
	pc.BeforeConnect = func(_ context.Context, to *pgx.ConnConfig) error {
		now, err := poolConfig(cfg)
		if err != nil {
			return err
		}
		*to = *now.ConnConfig
		s.watch(to)
		return nil
	}
	pc.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		syncRepCancelled(conn.PgConn()) // of whoever had the connection before
		return true, nil
	}
	return pgxpool.NewWithConfig(ctx, pc)
}

// watch has a connection hear what its server says beside its answers.
func (s *Store) watch(cc *pgx.ConnConfig) {
	cc.OnNotice = noteSyncRep
	cc.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == codeReadOnly {
			s.leaveReadOnly(conn)
		}
		return severity(err) != "FATAL" && err.Code != codeReadOnly
	}
}

// leaveReadOnly has both pools close their connections, because the server of one refused a write: a demoted server may keep its
// connections and answer reads from them. Only the first connection that meets it resets; those made before the last reset are closed already.
func (s *Store) leaveReadOnly(conn *pgconn.PgConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, ok := conn.CustomData()[resetKey]; ok && made == s.resets {
		s.resetLocked()
		s.log.Warn("the database refuses writes (SQLSTATE 25006): all connections to it are closed, and new ones go to the host that accepts writes")
	}
}

// resetLocked has both pools close their connections, those in use when they are given back. Caller must hold mu.
func (s *Store) resetLocked() {
	s.resets++
	s.pool.Reset()
	if s.beats != nil {
		s.beats.Reset()
	}
}

const defaultMaxConns = 16

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	url, err := cfg.URL()
	if err != nil {
		return nil, err
	}
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	given, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if _, set := given.RuntimeParams["pool_max_conns"]; !set {
		pc.MaxConns = int32(cmp.Or(cfg.MaxConns, defaultMaxConns))
	}
	params := pc.ConnConfig.RuntimeParams
	if v, set := params["synchronous_commit"]; set && !slices.Contains([]string{"on", "remote_write", "remote_apply"}, v) {
		return nil, fmt.Errorf("synchronous_commit=%s in the URL would answer before the commit is safe; leave it out, or use on, remote_write or remote_apply", v)
	}
	for k, v := range runtimeParams() {
		if _, set := params[k]; !set || k != "synchronous_commit" && k != "application_name" {
			params[k] = v
		}
	}
	if pc.ConnConfig.ValidateConnect == nil {
		pc.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if pc.ConnConfig.ConnectTimeout == 0 || pc.ConnConfig.ConnectTimeout > 5*time.Second {
		pc.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	return pc, nil
}

// ErrFsyncOff refuses a server that acknowledges commits it may lose.
var ErrFsyncOff = errors.New("this PostgreSQL runs with fsync=off and may lose commits it has acknowledged; set fsync=on")

// Generation implements nonce.Store.
func (s *Store) Generation() uint64 { return s.generation.Load() }

// DatabaseID tells this database from others: two gateways whose stores say the same
// share their nonces. A standby that was promoted says the same as the server whose
// copy it is; so does any other copy of all its files, until it is dumped and
// restored. It is a word of ASCII that tells nothing else.
func (s *Store) DatabaseID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256([]byte(s.databaseID))
	return hex.EncodeToString(sum[:16])
}

// Name implements nonce.Store.
func (s *Store) Name() string { return "postgres" }

// Ping implements nonce.Database.
func (s *Store) Ping(ctx context.Context) error {
	return s.moment(ctx, "ping", func(*pgx.Batch) {})
}

// Close implements nonce.Store.
func (s *Store) Close() error {
	s.pool.Close()
	if s.beats != nil {
		s.beats.Close()
	}
	return nil
}

// conn takes a connection. Its error means that nothing was sent.
func (s *Store) conn(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, notSent("connect to PostgreSQL", err)
	}
	return conn, nil
}

// generationKey is where a connection says of which generation it is.
const generationKey = "noncegate.generation"

// resetKey is where a connection says how often the pools had been reset when it was made.
const resetKey = "noncegate.resets"

const syncRepKey = "noncegate.syncrep"

// noteSyncRep remembers the warning with which a commit succeeds although its
// wait for the synchronous replica was cancelled.
func noteSyncRep(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code == "01000" && n.SeverityUnlocalized == "WARNING" && n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[syncRepKey] = true
	}
}

// syncRepCancelled reports and clears that warning.
func syncRepCancelled(conn *pgconn.PgConn) bool {
	_, was := conn.CustomData()[syncRepKey]
	delete(conn.CustomData(), syncRepKey)
	return was
}
