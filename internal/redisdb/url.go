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

// The schemes of an address. A cluster is never guessed: the same address means
// one server, or the cluster that it belongs to.
const (
	schemeTCP        = "redis"
	schemeTLS        = "rediss"
	schemeUnix       = "unix"
	schemeCluster    = "redis+cluster"
	schemeClusterTLS = "rediss+cluster"
)

// What an address may say after the question mark. The rest of what go-redis knows
// there, retries above all, is not a matter of settings.
var parameters = []string{"db", "client_name", "dial_timeout", "read_timeout", "write_timeout", "pool_size", "skip_verify"}

// Defaults and bounds. A Redis that needs longer than a second is as good as away
// for whoever waits for a nonce.
const (
	defaultTimeout = time.Second
	maxTimeout     = time.Minute
	defaultPool    = 32 // connections, on a cluster for each server
	maxPool        = 1024
)

var (
	errScheme  = errors.New("must be a URL that starts with redis://, rediss://, unix://, redis+cluster:// or rediss+cluster://")
	errForm    = errors.New("must be redis://[USER:PASSWORD@]HOST:PORT[/DATABASE], unix://PATH or redis+cluster://HOST:PORT,HOST:PORT, with reserved characters of the password written as %XX")
	errUnknown = errors.New("takes no parameters but " + strings.Join(parameters, ", "))
	errTimes   = errors.New("needs times between 1ms and 1m in its parameters")
	errPool    = errors.New("needs a pool_size between 1 and 1024")
	errCluster = errors.New("must not choose a database on a cluster, which has only one")
)

// CheckURL reports what is wrong about an address, as the end of a sentence that
// begins with the setting it came from. It never shows the address, which may hold
// a password.
func CheckURL(address string) error {
	_, _, err := parse(address)
	return err
}

// parse makes options of an address: those of one server, or those of a cluster.
func parse(address string) (*redis.Options, *redis.ClusterOptions, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || !slices.Contains([]string{schemeTCP, schemeTLS, schemeUnix, schemeCluster, schemeClusterTLS}, scheme) {
		return nil, nil, errScheme
	}
	var others []string
	cluster := strings.HasSuffix(scheme, "+cluster")
	if cluster {
		scheme = strings.TrimSuffix(scheme, "+cluster")
		rest, others = firstHost(rest)
	}
	address = scheme + "://" + rest
	u, err := url.Parse(address) // its error would show the address
	if err != nil || scheme != schemeUnix && u.Host == "" {
		return nil, nil, errForm
	}
	for name := range u.Query() {
		if !slices.Contains(parameters, name) {
			return nil, nil, errUnknown
		}
	}
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, nil, errForm
	}
	if err := bound(options); err != nil {
		return nil, nil, err
	}
	if !cluster {
		return options, nil, nil
	}
	if options.DB != 0 {
		return nil, nil, errCluster
	}
	return nil, clusterOptions(options, others), nil
}

// firstHost takes all hosts but the first out of an address of several.
func firstHost(rest string) (first string, others []string) {
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	begin := strings.LastIndexByte(authority, '@') + 1
	hosts := strings.Split(authority[begin:], ",")
	return authority[:begin] + hosts[0] + tail, hosts[1:]
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
	o.DialerRetries = 1             // who waits has a bound of his own
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

// clusterOptions are those of a cluster that has these servers among its own.
func clusterOptions(o *redis.Options, others []string) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: append([]string{o.Addr}, others...), ClientName: o.ClientName,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled, Protocol: o.Protocol,
		PoolSize: o.PoolSize, MaxActiveConns: o.MaxActiveConns, PipelinePoolSize: o.PipelinePoolSize,
		PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime,
		ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		MaxRedirects:               -1,   // go-redis would repeat after a timeout, too
		DisableRoutingPolicies:     true, // our commands name their keys
		ClusterStateReloadInterval: mapAge,
	}
}

// mapAge is how old the map of a cluster may be. A server that has died answers no
// MOVED.
const mapAge = time.Second
