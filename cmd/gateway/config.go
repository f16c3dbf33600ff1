package main

import (
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
)

// Defaults of the numbers of workers, in one place because they are tuned
// together.
const (
	defaultWorkers       = "2"
	defaultEncodeWorkers = "2"
	defaultPostDBWorkers = "4"
)

// Config is every setting of the serve command. Each field is a flag, an
// environment variable and a key of the configuration file at once; its help
// tag is its documentation, its unit and its trade-off included. A Config that
// Validate accepts is complete but for NodeID and AdvertiseURL, which may be
// empty until Identity is asked.
type Config struct {
	File string `name:"config" placeholder:"FILE" help:"YAML file with settings. Its keys are the names of these flags. A flag wins over the environment, and that over the file."`

	Listen           string        `group:"net" default:"127.0.0.1:8080" help:"Address for WebSocket clients, on /ws."`
	AdminListen      string        `group:"net" default:"127.0.0.1:8081" help:"Private address, for /metrics, /healthz, /readyz, /engine, /signers, /shards and with --pprof /debug/pprof/. Beyond loopback it needs --admin-key."`
	MaxConnections   int           `group:"net" default:"10000" help:"Most open connections. Beyond it a client is answered HTTP 503."`
	MaxMessageBytes  int64         `group:"net" default:"65536" help:"Longest frame a client may send, in bytes. A longer one closes its connection with 1009."`
	MaxReceiveBytes  int64         `group:"net" default:"67108864" help:"Most bytes of messages above 8 KiB that are being received, or by /eth/CHAIN are not answered yet. With --rights principals have equal parts of three quarters of it. More waits unread, until --message-timeout."`
	MaxBatch         int           `group:"net" default:"100" help:"Most requests in one JSON array."`
	MaxInflight      int           `group:"net" default:"256" help:"Most requests of one connection at a time. Beyond it: server_busy, stage connection."`
	MaxInflightTotal int           `group:"net" default:"16384" help:"Most requests of all connections at a time. Beyond it: server_busy, stage inflight."`
	PingInterval     time.Duration `group:"net" default:"30s" help:"How often a connection is pinged. One that is silent for 2.5 times as long is closed."`
	DrainTimeout     time.Duration `group:"net" default:"20s" help:"Longest orderly shutdown after SIGTERM or SIGINT. A second signal ends at once."`

	AccessConfig

	StoreConfig
	Redis             string        `group:"store" placeholder:"URL" help:"Redis 7 or later, for the performance engine of a Postgres store (gateway engine), and for events between its nodes: redis://HOST:PORT, rediss:// with TLS, unix://PATH, redis+cluster://HOST:PORT,HOST:PORT. All nodes of a store use the same one, or none. Best given by the environment where it holds a password. Default: none."`
	RequestRetention  time.Duration `group:"store" default:"24h" help:"How long a request id is remembered. 0 keeps all, and 1m is the least otherwise."`
	ConsumedRetention time.Duration `group:"store" default:"168h" help:"How long a CONSUMED allocation is kept after its last change, at least 1m. Then only that it is consumed is known. 0 keeps all."`

	TLSConfig

	NodeID       string `name:"node-id" group:"node" placeholder:"ID" help:"Name of this node among those that share the store, the same at each start. Default: the host name and the port of --listen."`
	AdvertiseURL string `name:"advertise-url" group:"node" placeholder:"URL" help:"URL under which clients and other nodes reach this one. Default: made from --listen."`

	NodeSecret     string        `group:"node" placeholder:"SECRET" help:"What the nodes of one cluster show each other, at least 16 characters. Without it nodes talk to each other over loopback only, and with --rights not at all. Give it by the environment or the file: a command line is seen by every user of the host."`
	Forward        string        `group:"node" default:"on" help:"on: a request for a signer that another node owns is sent there. off: it is refused as not_owner with that node's URL."`
	ForwardQueue   int           `group:"node" default:"4096" help:"Most requests under way at one other node; above a quarter of --max-inflight-total it counts as that. Principals share it equally; one that is alone may have seven eighths. Beyond it: server_busy, stage forward."`
	ForwardTimeout time.Duration `group:"node" default:"5s" help:"Longest wait for another node's answer, at most 20s. Beyond it: unavailable, outcome unknown. A node that says nothing for three quarters of it counts as lost."`

	Mode                string        `group:"work" default:"worker-queue" help:"worker-queue: requests of a signer share commits. basic: each request is its own transaction."`
	Workers             int           `group:"work" default:"${workers}" help:"Workers. Each runs an equal part of this node's shards, one batch at a time."`
	WorkerQueueCapacity int           `group:"work" default:"4096" help:"Most requests waiting at one worker."`
	WorkerRejectPolicy  string        `group:"work" default:"fail-fast" help:"When a worker's queue is full. fail-fast: server_busy, stage worker. caller-runs: the connection waits until its requests run, and reads nothing meanwhile."`
	LeaseTTL            time.Duration `name:"lease-ttl" group:"work" default:"5s" help:"How long a node owns its shards after its last heartbeat; there is one each third of it. Shorter frees what a dead node owned sooner, at least 1s."`
	HoldTTL             time.Duration `name:"hold-ttl" group:"work" default:"60s" help:"How long a nonce is held for a client that does not say."`
	MaxHold             time.Duration `group:"work" default:"10m" help:"Longest hold a client may ask for."`
	MaxHolds            int           `group:"work" default:"256" help:"Most nonces of one signer that are held or were given back, 1 to 4096. Beyond it: hold_limit."`
	MaxSigners          int           `group:"work" default:"1000000" help:"Most signers whose state is remembered between requests. Those asked for least recently are forgotten and read again."`
	MaxSignerBytes      int64         `group:"work" default:"536870912" help:"Most memory for their state, in bytes, of all workers together. Beyond it signers are forgotten as beyond --max-signers."`
	SweepInterval       time.Duration `group:"work" default:"1s" help:"How often holds past their deadline are looked for."`
	SubmitGuardInterval time.Duration `group:"work" default:"0s" help:"Longest guard, 100ms to 10m, of a call that names none: while it runs, the same call with the same parameters is refused as duplicate_submit. 0: only calls that ask for it are guarded."`

	EngineConfig

	ChainConfig

	WriteHighBytes int64         `group:"slow" default:"65536" help:"Bytes queued to one client above which --slow-policy applies. Also the send buffer asked of the kernel for each connection (Linux takes twice as much), so that a client that does not read is noticed, and costs no more than that."`
	WriteLowBytes  int64         `group:"slow" default:"16384" help:"Bytes queued below which it ends."`
	WriteMaxBytes  int64         `group:"slow" default:"1048576" help:"Most bytes queued to one client. Beyond it the connection is closed with 4001."`
	SlowAfter      time.Duration `group:"slow" default:"10s" help:"How long a client may stay above --write-high-bytes before kick closes it."`
	SlowPolicy     string        `group:"slow" default:"pause,drop,kick" help:"What is done with a slow client: pause its reads, drop its notifications, kick it after --slow-after."`
	Backpressure   string        `group:"slow" default:"on" help:"on or off. off leaves only the hard bounds: --write-max-bytes, --write-timeout, and the age and number of queued messages."`
	WriteTimeout   time.Duration `group:"slow" default:"10s" help:"Longest single write to a client. Beyond it the connection is closed."`

	EncodeWorkers int `group:"pools" default:"${encode_workers}" help:"Workers that encode replies and events."`
	EncodeQueue   int `group:"pools" default:"16384" help:"Most messages waiting to be encoded. Beyond it: server_busy, stage encode."`
	PostDBWorkers int `name:"postdb-workers" group:"pools" default:"${postdb_workers}" help:"Workers that publish events after a commit."`
	PostDBQueue   int `name:"postdb-queue" group:"pools" default:"16384" help:"Most requests whose events wait for them. Beyond it: server_busy, stage postdb, for requests somebody watches."`

	PerfInterval time.Duration `group:"log" default:"10s" help:"How often the ws_perf line is logged. gateway_stats shows the last one."`
	LogConfig
}

// StoreConfig is where the nonces are kept; serve and migrate share it.
type StoreConfig struct {
	Store     string        `group:"store" default:"sqlite:noncegate.db" help:"sqlite:FILE for one process, or postgres://USER@HOST/DATABASE for many nodes."`
	StoreFile string        `group:"store" placeholder:"FILE" help:"File with the URL of PostgreSQL, instead of --store. It is read anew for each connection, so that a password may be rotated, as is a passfile that the URL names."`
	StoreWait time.Duration `group:"store" default:"30s" help:"How long a Postgres that is away at the start is waited for."`
	Shards    int           `group:"store" default:"0" help:"Shards of a new database, which are fixed from then on. 0: 32, and 4 of a SQLite file."`
}

// LogConfig is how the log is written; it goes to standard error.
type LogConfig struct {
	LogFormat string `group:"log" default:"auto" help:"text, json, or auto: text on a terminal, JSON elsewhere."`
	LogLevel  string `group:"log" default:"info" help:"debug, info, warn or error."`
}

// groups are the headings of the flags in --help.
var groups = map[string]string{
	"net":    "Connections:",
	"tls":    "TLS and the private side:",
	"access": "Who may connect, and how much:",
	"store":  "Store:",
	"node":   "Node:",
	"work":   "Nonces:",
	"engine": "Performance engine, with --redis:",
	"chain":  "Chains:",
	"slow":   "Slow clients:",
	"pools":  "Pools:",
	"log":    "Log and metrics:",
}

// SlowActions tells which actions --slow-policy names.
func (c *Config) SlowActions() (pause, drop, kick bool) {
	for action := range strings.SplitSeq(c.SlowPolicy, ",") {
		switch action {
		case "pause":
			pause = true
		case "drop":
			drop = true
		case "kick":
			kick = true
		}
	}
	return pause, drop, kick
}

// setting is the flag that names the store.
func (c *StoreConfig) setting() string {
	if c.StoreFile != "" {
		return "store-file"
	}
	return "store"
}

// SQLitePath returns the file of a sqlite store, and whether it is one. What is
// not is a Postgres URL.
func (c *StoreConfig) SQLitePath() (path string, ok bool) {
	if c.StoreFile != "" {
		return "", false
	}
	return strings.CutPrefix(c.Store, "sqlite:")
}

// Identity returns the node's id and URL: those that were set, else made from
// the address the WebSocket listener is bound to. A listener on every interface
// goes by the host name.
func (c *Config) Identity(bound net.Addr) (node, url string, err error) {
	node, url = c.NodeID, c.AdvertiseURL
	if node != "" && url != "" {
		return node, url, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", "", err
	}
	ip, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", "", err
	}
	if node == "" {
		node = net.JoinHostPort(host, port)
	}
	if url == "" {
		if !net.ParseIP(ip).IsUnspecified() {
			host = ip
		}
		scheme := "ws://"
		if c.TLSCert != "" {
			scheme = "wss://"
		}
		url = scheme + net.JoinHostPort(host, port) + "/ws"
	}
	return node, url, nil
}

// Logger makes the log that the settings describe, which must be valid.
func (c *LogConfig) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	// It cannot fail: Validate admits only words that slog knows.
	_ = level.UnmarshalText([]byte(c.LogLevel))
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "text" || c.LogFormat == "auto" && terminal(w) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// terminal reports whether somebody reads w as it is written.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
