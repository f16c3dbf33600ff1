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
	"noncegate/internal/redisdb"
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

// Validate reports the first contradiction that the rules in the tags do not find, as one sentence.
func (c *Config) Validate() error {
	if c.Listen == c.AdminListen && !strings.HasSuffix(c.Listen, ":0") {
		return settingErrorf("admin-listen", "%q must differ from --listen", c.AdminListen)
	}
	if err := redisdb.CheckURL(c.Redis); c.Redis != "" && err != nil { // it never shows the URL, which may hold a password
		return settingErrorf("redis", "%v", err)
	}
	return cmp.Or(
		address("listen", c.Listen),
		address("admin-listen", c.AdminListen),
		atLeast("max-receive-bytes", c.MaxReceiveBytes, c.leastReceiveBytes()),
		c.AccessConfig.checkOrigins(),
		c.TLSConfig.check(),
		c.checkProtection(),
		c.StoreConfig.Validate(),
		c.checkNode(),
		c.ChainConfig.check(),
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
	return nil
}

// A secret is guessed offline by nobody, so 16 characters are enough; the header it
// travels in bounds it above.
const minSecret, maxSecret = 16, 512

// secret checks what two parties show each other; none is allowed. It is not shown.
func secret(flag, value string) error {
	visible := !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' })
	if n := len(value); n > 0 && (n < minSecret || n > maxSecret || !visible) {
		return settingErrorf(flag, "must be %d to %d visible ASCII characters", minSecret, maxSecret)
	}
	return nil
}

// Validate never shows the URL, which may hold a password.
func (c *StoreConfig) Validate() error {
	if path, ok := c.SQLitePath(); ok {
		if path == "" {
			return settingErrorf("store", "sqlite: needs the name of a file, such as sqlite:noncegate.db")
		}
		if strings.HasPrefix(path, ":") || strings.HasPrefix(path, "file:") {
			return settingErrorf("store", "sqlite:%s is no file: nonces in memory would be handed out twice after a restart; "+
				"name a file, such as sqlite:noncegate.db", path)
		}
	} else if c.StoreFile != "" {
		if err := c.checkStoreFile(); err != nil {
			return err
		}
	} else if !isPostgresURL(c.Store) {
		return settingErrorf("store", "must be sqlite:FILE or a URL that starts with postgres:// or postgresql://")
	}
	return nil
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

func atLeast[T cmp.Ordered](flag string, value, least T) error {
	if value < least {
		return settingErrorf(flag, "%v must be at least %v", value, least)
	}
	return nil
}

func notNegative[T int | int64 | time.Duration](flag string, value T) error {
	if value < 0 {
		return settingErrorf(flag, "%v must not be negative", value)
	}
	return nil
}
