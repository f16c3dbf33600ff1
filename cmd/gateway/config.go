package main

import (
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"noncegate/internal/admin"
	"noncegate/internal/cluster"
	"noncegate/internal/guard"
	"noncegate/nonce"
	"noncegate/wire"
)

// Config is every setting of the serve command. Each field is a flag, an environment variable and a key of the
// configuration file at once. Its tag has the default and the rules that rules.go checks; help.yaml has its documentation,
// the unit and the trade-off included. The defaults of the numbers of workers are tuned together. A Config that Validate
// accepts is complete but for NodeID and AdvertiseURL, which may be empty until Identity is asked.
type Config struct {
	File string `name:"config" placeholder:"FILE"`

	Listen           string        `group:"net" default:"127.0.0.1:8080"`
	AdminListen      string        `group:"net" default:"127.0.0.1:8081"`
	MaxConnections   int           `group:"net" default:"10000" min:"1"`
	MaxMessageBytes  int64         `group:"net" default:"65536" min:"1024"`
	MaxReceiveBytes  int64         `group:"net" default:"67108864"`
	MaxBatch         int           `group:"net" default:"100" min:"1" upto:"max-inflight"`
	MaxInflight      int           `group:"net" default:"256" min:"1" upto:"max-inflight-total"`
	MaxInflightTotal int           `group:"net" default:"16384" upto:"encode-queue"`
	PingInterval     time.Duration `group:"net" default:"30s" min:"1s"`
	DrainTimeout     time.Duration `group:"net" default:"20s" min:"1s"`

	AccessConfig `group:"access"`

	StoreConfig
	Redis             string        `group:"store" placeholder:"URL"`
	RequestRetention  time.Duration `group:"store" default:"24h" min:"1m" or:"0"`
	ConsumedRetention time.Duration `group:"store" default:"168h" min:"1m" or:"0"`

	TLSConfig `group:"tls"`

	NodeID       string `name:"node-id" group:"node" placeholder:"ID"`
	AdvertiseURL string `name:"advertise-url" group:"node" placeholder:"URL"`

	NodeSecret     string        `group:"node" placeholder:"SECRET"`
	Forward        string        `group:"node" default:"on" oneof:"on,off"`
	ForwardQueue   int           `group:"node" default:"4096" min:"1"`
	ForwardTimeout time.Duration `group:"node" default:"5s" min:"100ms" max:"20s"`

	Mode                string        `group:"work" default:"worker-queue" oneof:"worker-queue,basic"`
	Workers             int           `group:"work" default:"2" min:"1"`
	WorkerQueueCapacity int           `group:"work" default:"4096" min:"1"`
	WorkerRejectPolicy  string        `group:"work" default:"fail-fast" oneof:"fail-fast,caller-runs"`
	LeaseTTL            time.Duration `name:"lease-ttl" group:"work" default:"5s" min:"1s"`
	HoldTTL             time.Duration `name:"hold-ttl" group:"work" default:"60s" min:"1s" upto:"max-hold"`
	MaxHold             time.Duration `group:"work" default:"10m"`
	MaxHolds            int           `group:"work" default:"256" min:"1" max:"4096" hint:": a signer is one row, which is written whole"`
	MaxSigners          int           `group:"work" default:"1000000" min:"1"`
	MaxSignerBytes      int64         `group:"work" default:"536870912" min:"1048576"`
	SweepInterval       time.Duration `group:"work" default:"1s" min:"10ms"`
	SubmitGuardInterval time.Duration `group:"work" default:"0s" min:"100ms" or:"0" max:"10m"`

	EngineConfig `group:"engine"`

	ChainConfig `group:"chain"`

	WriteHighBytes int64         `group:"slow" default:"65536" below:"write-max-bytes"`
	WriteLowBytes  int64         `group:"slow" default:"16384" min:"0" below:"write-high-bytes"`
	WriteMaxBytes  int64         `group:"slow" default:"1048576"`
	SlowAfter      time.Duration `group:"slow" default:"10s" min:"1ms"`
	SlowPolicy     string        `group:"slow" default:"pause,drop,kick" some:"pause,drop,kick" hint:"; for none there is --backpressure=off"`
	Backpressure   string        `group:"slow" default:"on" oneof:"on,off"`
	WriteTimeout   time.Duration `group:"slow" default:"10s" min:"1ms"`

	EncodeWorkers int `group:"pools" default:"2" min:"1"`
	EncodeQueue   int `group:"pools" default:"16384" min:"1"`
	PostDBWorkers int `name:"postdb-workers" group:"pools" default:"4" min:"1"`
	PostDBQueue   int `name:"postdb-queue" group:"pools" default:"16384" min:"1"`

	inForce []admin.Setting // all of these, for people who look

	PerfInterval time.Duration `group:"log" default:"10s" min:"100ms"`
	LogConfig
}

// StoreConfig is where the nonces are kept; serve and migrate share it.
type StoreConfig struct {
	Store     string        `group:"store" default:"sqlite:noncegate.db"`
	StoreFile string        `group:"store" placeholder:"FILE"`
	StoreWait time.Duration `group:"store" default:"30s" min:"0s"`
	Shards    int           `group:"store" default:"0" min:"0" max:"1024"`
}

// EngineConfig is the settings of the performance engine. They mean nothing without
// --redis. All nodes of a store are to have the same.
type EngineConfig struct {
	ShipSLA         time.Duration `name:"ship-sla" default:"1s" min:"10ms" below:"engine-grant"`
	ShipInterval    time.Duration `default:"100ms" min:"1ms" upto:"ship-sla"`
	EngineGrant     time.Duration `default:"45s" min:"1s" max:"10m"`
	EngineRehearsal time.Duration `default:"10s" min:"0s"`
	EngineTimeout   time.Duration `default:"1s" min:"10ms" below:"engine-grant,redis-lost-after"`
	RedisLostAfter  time.Duration `default:"30s"`
}

// LogConfig is how the log is written; it goes to standard error.
type LogConfig struct {
	LogFormat string `group:"log" default:"auto" oneof:"auto,text,json"`
	LogLevel  string `group:"log" default:"info" oneof:"debug,info,warn,error"`
}

// These do not compile unless the bounds in the tags above are those of the packages.
var (
	_ = [1]bool{nonce.MaxLive - 4096: true}                        // --max-holds
	_ = [1]bool{guard.MinInterval - 100*time.Millisecond: true}    // --submit-guard-interval
	_ = [1]bool{guard.MaxInterval - 10*time.Minute: true}          // --submit-guard-interval
	_ = [1]bool{cluster.BrokenPathTTL - (20+10)*time.Second: true} // --forward-timeout: none behind a request that was sent back comes later
	_ = [1]bool{wire.MaxListLimit - 1000: true}                    // signer show --limit
	_ = [1]bool{admin.MaxSignerList - 1000: true}                  // signer list --limit
)

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

// slow reports whether --slow-policy names an action.
func (c *Config) slow(action string) bool {
	return slices.Contains(strings.Split(c.SlowPolicy, ","), action)
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

// terminal reports whether a person reads w as it is written.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
