package redisdb

import (
	"crypto/tls"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// schemes are those of an address.
var schemes = []string{"redis", "rediss", "unix"}

// What an address may say after the question mark. The rest of what go-redis knows
// there, retries above all, is not a matter of settings.
var parameters = []string{"db", "client_name", "dial_timeout", "read_timeout", "write_timeout", "pool_size", "skip_verify"}

// Defaults and bounds. To a client that waits for a nonce, a Redis that needs longer than a second
// is as good as away.
const (
	defaultTimeout = time.Second
	maxTimeout     = time.Minute
	defaultPool    = 32 // connections
	maxPool        = 1024
)

var (
	errScheme  = errors.New("must be a URL that starts with redis://, rediss:// or unix://")
	errForm    = errors.New("must be redis://[USER:PASSWORD@]HOST:PORT[/DATABASE] or unix://PATH, with reserved characters of the password written as %XX")
	errUnknown = errors.New("takes no parameters but " + strings.Join(parameters, ", "))
	errTimes   = errors.New("needs times between 1ms and 1m in its parameters")
	errPool    = errors.New("needs a pool_size between 1 and 1024")
)

// CheckURL reports what is wrong about an address, as the end of a sentence that
// begins with the setting it came from. It never shows the address, which may hold
// a password.
func CheckURL(address string) error {
	_, err := parse(address)
	return err
}

// parse makes options of an address.
func parse(address string) (*redis.Options, error) {
	scheme, _, ok := strings.Cut(address, "://")
	if !ok || !slices.Contains(schemes, scheme) {
		return nil, errScheme
	}
	u, err := url.Parse(address) // its error would show the address
	if err != nil || scheme != "unix" && u.Host == "" {
		return nil, errForm
	}
	for name := range u.Query() {
		if !slices.Contains(parameters, name) {
			return nil, errUnknown
		}
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, errForm
	}
	return options, bound(options)
}

// bound sets what an address may not choose, and checks what it did.
func bound(o *redis.Options) error {
	for _, t := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout} {
		if *t == 0 {
			*t = defaultTimeout
		}
		if *t < time.Millisecond || *t > maxTimeout {
			return errTimes
		}
	}
	if o.PoolSize == 0 {
		o.PoolSize = defaultPool
	}
	if o.PoolSize < 1 || o.PoolSize > maxPool {
		return errPool
	}
	o.MaxRetries = -1               // a command whose answer was lost may have run
	o.DialerRetries = 1             // each caller has a bound of its own
	o.ContextTimeoutEnabled = true  // and it counts
	o.Protocol = 2                  // without what version 3 pushes between answers
	o.MaxActiveConns = o.PoolSize   // not only those that are kept
	o.PipelinePoolSize = -1         // pipelines are of the same pool
	o.PoolTimeout = defaultTimeout  // for a connection, where all are taken
	o.ConnMaxIdleTime = time.Minute // below the usual times of what lies between
	// Where a name or an address leads to another server from some day on, connections
	// must not go on leading to both.
	o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = time.Minute, 10*time.Second
	if o.TLSConfig != nil {
		o.TLSConfig.MinVersion = tls.VersionTLS12
	}
	return nil
}
