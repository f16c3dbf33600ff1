package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"noncegate/chain/ethereum/endpoint"
	"noncegate/internal/guard"
	"noncegate/internal/redisdb"
	"noncegate/nonce"
	"noncegate/ws"
)

// settingError is a setting that cannot be used. The process ends with exit
// code 2 and its sentence, followed by where the setting came from.
type settingError struct {
	flag string // without the dashes
	rule string
}

// Error returns one sentence that names the flag.
func (e *settingError) Error() string { return "--" + e.flag + " " + e.rule }

func settingErrorf(flag, format string, args ...any) error {
	return &settingError{flag: flag, rule: fmt.Sprintf(format, args...)}
}

// Validate reports the first setting that is out of range or contradicts
// another, as one sentence.
func (c *Config) Validate() error {
	return cmp.Or(
		c.checkConnections(),
		c.AccessConfig.check(),
		c.TLSConfig.check(),
		c.checkProtection(),
		c.StoreConfig.check(),
		c.checkRedis(),
		zeroOrAtLeast("request-retention", c.RequestRetention, minRequestRetention),
		zeroOrAtLeast("consumed-retention", c.ConsumedRetention, minConsumedRetention),
		c.checkNode(),
		c.checkNonces(),
		c.EngineConfig.check(),
		c.ChainConfig.check(),
		c.checkSlowClients(),
		c.checkPools(),
		atLeast("perf-interval", c.PerfInterval, 100*time.Millisecond),
		c.LogConfig.check(),
	)
}

// minRequestRetention is longer than it takes the gateway to ask again by a request id: about a
// forwarded request that was not answered, or a commit whose outcome is unknown.
const minRequestRetention = time.Minute

// minConsumedRetention is longer than anybody should repeat a mark, and than it
// takes to settle a commit whose outcome is unknown: both look at the allocation.
const minConsumedRetention = time.Minute

func (c *Config) checkConnections() error {
	return cmp.Or(
		address("listen", c.Listen),
		address("admin-listen", c.AdminListen),
		apart(c.Listen, c.AdminListen),
		atLeast("max-connections", c.MaxConnections, 1),
		atLeast("max-message-bytes", c.MaxMessageBytes, 1024),
		atLeast("max-receive-bytes", c.MaxReceiveBytes, c.leastReceiveBytes()),
		atLeast("max-batch", c.MaxBatch, 1),
		atLeast("max-inflight", c.MaxInflight, 1),
		notAbove("max-batch", c.MaxBatch, "max-inflight", c.MaxInflight),
		notAbove("max-inflight", c.MaxInflight, "max-inflight-total", c.MaxInflightTotal),
		notAbove("max-inflight-total", c.MaxInflightTotal, "encode-queue", c.EncodeQueue),
		atLeast("ping-interval", c.PingInterval, time.Second),
		atLeast("drain-timeout", c.DrainTimeout, time.Second),
	)
}

// leastReceiveBytes is what two principals need for the longest message each.
func (c *Config) leastReceiveBytes() int64 {
	longest := c.MaxMessageBytes
	if len(c.Chain) > 0 {
		longest = max(longest, endpoint.Bounds(c.MaxInflight).MaxMessageBytes)
	}
	return 4 * longest
}

func (c *Config) checkNode() error {
	if len(c.NodeID) > 128 || strings.ContainsFunc(c.NodeID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return settingErrorf("node-id", "must be 1 to 128 visible ASCII characters")
	}
	if err := secret("node-secret", c.NodeSecret); err != nil {
		return err
	}
	if c.AdvertiseURL != "" {
		if err := webSocketURL("advertise-url", c.AdvertiseURL); err != nil {
			return err
		}
		if u, err := url.Parse(c.AdvertiseURL); err == nil && u.User != nil {
			return settingErrorf("advertise-url", "must have no user: clients and other nodes are told it")
		}
	}
	return cmp.Or(
		oneOf("forward", c.Forward, "on", "off"),
		atLeast("forward-queue", c.ForwardQueue, 1),
		atLeast("forward-timeout", c.ForwardTimeout, 100*time.Millisecond),
		atMost("forward-timeout", c.ForwardTimeout, maxForwardTimeout),
	)
}

// maxForwardTimeout is below the time for which a node remembers that it sent a
// request back, so that none behind it can come later.
const maxForwardTimeout = ws.BrokenStreamTTL - 10*time.Second

// A secret is guessed offline by nobody, so 16 characters are enough; the header it
// travels in bounds it above.
const minSecret, maxSecret = 16, 512

// secret checks what two parties show each other; none is allowed. It is not shown.
func secret(flag, value string) error {
	if n := len(value); n > 0 && (n < minSecret || n > maxSecret || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' })) {
		return settingErrorf(flag, "must be %d to %d visible ASCII characters", minSecret, maxSecret)
	}
	return nil
}

func (c *Config) checkNonces() error {
	return cmp.Or(
		oneOf("mode", c.Mode, "worker-queue", "basic"),
		atLeast("workers", c.Workers, 1),
		atLeast("worker-queue-capacity", c.WorkerQueueCapacity, 1),
		oneOf("worker-reject-policy", c.WorkerRejectPolicy, "fail-fast", "caller-runs"),
		atLeast("lease-ttl", c.LeaseTTL, time.Second),
		atLeast("hold-ttl", c.HoldTTL, time.Second),
		notAbove("hold-ttl", c.HoldTTL, "max-hold", c.MaxHold),
		c.checkMaxHolds(),
		atLeast("max-signers", c.MaxSigners, 1),
		atLeast("max-signer-bytes", c.MaxSignerBytes, minSignerBytes),
		atLeast("sweep-interval", c.SweepInterval, 10*time.Millisecond),
		zeroOrAtLeast("submit-guard-interval", c.SubmitGuardInterval, guard.MinInterval),
		atMost("submit-guard-interval", c.SubmitGuardInterval, guard.MaxInterval),
	)
}

// minSignerBytes is room for a few signers with as many holds as there may be.
const minSignerBytes = 1 << 20

func (c *Config) checkMaxHolds() error {
	if c.MaxHolds < 1 || c.MaxHolds > nonce.MaxLive {
		return settingErrorf("max-holds", "%d must be 1 to %d: all of a signer is one row, which is written whole, and no chain takes as many pending transactions of one account", c.MaxHolds, nonce.MaxLive)
	}
	return nil
}

func (c *Config) checkSlowClients() error {
	return cmp.Or(
		notNegative("write-low-bytes", c.WriteLowBytes),
		below("write-low-bytes", c.WriteLowBytes, "write-high-bytes", c.WriteHighBytes),
		below("write-high-bytes", c.WriteHighBytes, "write-max-bytes", c.WriteMaxBytes),
		atLeast("slow-after", c.SlowAfter, time.Millisecond),
		slowPolicy(c.SlowPolicy),
		oneOf("backpressure", c.Backpressure, "on", "off"),
		atLeast("write-timeout", c.WriteTimeout, time.Millisecond),
	)
}

func (c *Config) checkPools() error {
	return cmp.Or(
		atLeast("encode-workers", c.EncodeWorkers, 1),
		atLeast("encode-queue", c.EncodeQueue, 1),
		notAbove("max-inflight", c.MaxInflight, "encode-queue", c.EncodeQueue),
		atLeast("postdb-workers", c.PostDBWorkers, 1),
		atLeast("postdb-queue", c.PostDBQueue, 1),
	)
}

// check never shows the URL, which may hold a password.
func (c *StoreConfig) check() error {
	if path, ok := c.SQLitePath(); ok {
		if path == "" {
			return settingErrorf("store", "sqlite: needs the name of a file, such as sqlite:noncegate.db")
		}
		if strings.HasPrefix(path, ":") || strings.HasPrefix(path, "file:") {
			return settingErrorf("store", "sqlite:%s is no file: nonces in memory would be handed out twice after a restart; name a file, such as sqlite:noncegate.db", path)
		}
	} else if c.StoreFile != "" {
		if err := c.checkStoreFile(); err != nil {
			return err
		}
	} else if !isPostgresURL(c.Store) {
		return settingErrorf("store", "must be sqlite:FILE or a URL that starts with postgres:// or postgresql://")
	}
	if c.Shards < 0 || c.Shards > maxShards {
		return settingErrorf("shards", "%d must be 0 to %d", c.Shards, maxShards)
	}
	return notNegative("store-wait", c.StoreWait)
}

func (c *StoreConfig) checkStoreFile() error {
	if c.Store != "" && c.Store != defaultStore {
		return settingErrorf("store-file", "names the store, and so does --store: take one of them away")
	}
	if _, err := c.storeURL(); err != nil {
		return settingErrorf("store-file", "%v", err)
	}
	return nil
}

// storeURL reads the URL of PostgreSQL. The error goes behind the setting, and does not show it.
func (c *StoreConfig) storeURL() (string, error) {
	if c.StoreFile == "" {
		return c.Store, nil
	}
	text, err := os.ReadFile(c.StoreFile)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	if u := strings.TrimSpace(string(text)); isPostgresURL(u) {
		return u, nil
	}
	return "", fmt.Errorf("%s must hold a URL that starts with postgres:// or postgresql://, and nothing else", c.StoreFile)
}

func isPostgresURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql")
}

// defaultStore is where nonces are kept if no setting says otherwise.
const defaultStore = "sqlite:noncegate.db"

// maxShards bounds the shards of a database: each costs every node a little at each look.
const maxShards = 1024

// checkRedis never shows the URL, which may hold a password.
func (c *Config) checkRedis() error {
	if c.Redis == "" {
		return nil
	}
	if err := redisdb.CheckURL(c.Redis); err != nil {
		return settingErrorf("redis", "%v", err)
	}
	return nil
}

func (c *LogConfig) check() error {
	return cmp.Or(
		oneOf("log-format", c.LogFormat, "auto", "text", "json"),
		oneOf("log-level", c.LogLevel, "debug", "info", "warn", "error"),
	)
}

func address(flag, value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return settingErrorf(flag, "%q must be HOST:PORT with a number as the port", value)
	}
	return nil
}

func apart(listen, admin string) error {
	if listen == admin && !strings.HasSuffix(listen, ":0") {
		return settingErrorf("admin-listen", "%q must differ from --listen", admin)
	}
	return nil
}

func webSocketURL(flag, value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme) {
		if at := strings.LastIndexByte(value, '@'); at >= 0 {
			value = "…" + value[at:] // what is before it may be a key
		}
		return settingErrorf(flag, "%q must be a URL that starts with ws://, wss://, http:// or https://", value)
	}
	return nil
}

func oneOf(flag, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return settingErrorf(flag, "%q must be %s", value, strings.Join(words, " or "))
}

func slowPolicy(value string) error {
	for action := range strings.SplitSeq(value, ",") {
		if !slices.Contains([]string{"pause", "drop", "kick"}, action) {
			return settingErrorf("slow-policy", "%q must be some of pause,drop,kick; for none of them there is --backpressure=off", value)
		}
	}
	return nil
}

func atLeast[T cmp.Ordered](flag string, value, least T) error {
	if value < least {
		return settingErrorf(flag, "%v must be at least %v", value, least)
	}
	return nil
}

func zeroOrAtLeast[T int | int64 | time.Duration](flag string, value, least T) error {
	if value != 0 && value < least {
		return settingErrorf(flag, "%v must be 0 or at least %v", value, least)
	}
	return nil
}

func notNegative[T int | int64 | time.Duration](flag string, value T) error {
	if value < 0 {
		return settingErrorf(flag, "%v must not be negative", value)
	}
	return nil
}

func below[T cmp.Ordered](flag string, value T, other string, bound T) error {
	if value >= bound {
		return settingErrorf(flag, "%v must be below --%s %v", value, other, bound)
	}
	return nil
}

func atMost[T cmp.Ordered](flag string, value, most T) error {
	if value > most {
		return settingErrorf(flag, "%v must be at most %v", value, most)
	}
	return nil
}

func notAbove[T cmp.Ordered](flag string, value T, other string, bound T) error {
	if value > bound {
		return settingErrorf(flag, "%v must not be above --%s %v", value, other, bound)
	}
	return nil
}
