package main

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/jwt"
	"noncegate/internal/access/quota"
	"noncegate/ws"
)

// AccessConfig is who may connect, and how much.
type AccessConfig struct {
	Rights string `group:"access" placeholder:"FILE" help:"YAML file that says who may connect, what each may do with which signers, and how much. With it every client shows an API key (gateway key create), a ticket (POST /ticket) or what the settings below allow; it is read again within seconds after it changes. Without it whoever connects may do everything."`

	JWTKeys     string        `name:"jwt-keys" group:"access" placeholder:"FILE" help:"JSON Web Key Set, a file or an https URL, that tokens are verified by. With it clients may show tokens too, which need --jwt-issuer and --jwt-audience."`
	JWTIssuer   string        `name:"jwt-issuer" group:"access" placeholder:"NAME" help:"What iss of a token must be."`
	JWTAudience string        `name:"jwt-audience" group:"access" placeholder:"NAME" help:"What aud of a token must be, or have among others."`
	JWTMethods  string        `name:"jwt-methods" group:"access" default:"ES256,EdDSA,RS256" help:"By which methods tokens may be signed."`
	JWTClaim    string        `name:"jwt-claim" group:"access" default:"sub" help:"Which claim of a token is the principal."`
	JWTPrefix   string        `name:"jwt-prefix" group:"access" placeholder:"TEXT" help:"Text put before it, so that the token issuer cannot name the principal of an API key."`
	JWTLeeway   time.Duration `name:"jwt-leeway" group:"access" default:"1m" help:"How far the token issuer's clock may differ, at most 10m. 0: not at all."`

	Origins       string `group:"access" placeholder:"ORIGINS" help:"Origins of pages whose browsers may connect, such as https://app.example,https://ops.example:8443. Default: that of the host they ask; without --rights over plain HTTP only where that is an address or localhost, because anyone can point a DNS name at this host."`
	MissingOrigin string `group:"access" default:"allow" help:"allow or refuse clients that name no origin, as programs do."`
	Audit         string `group:"access" default:"refusals" help:"Which lines say who did what. off; refusals: logins, what was refused for want of a right, raised floors; changes: every call that changes something, too; all: every call."`

	SignerRate          int           `group:"access" default:"0" help:"Most requests a second for one signer by the clients of this node, and at once; as many again of those that only read. Beyond it: server_busy, stage quota. 0: no limit. What a principal may do stands in --rights."`
	AddressConnections  int           `group:"access" default:"1000" help:"With --rights: most connections from one address (of IPv6, from one /64). Beyond it HTTP 429. 0: no limit, as where all clients come through one proxy."`
	AddressRate         int           `group:"access" default:"50" help:"With --rights: most new sockets a second from one address, with ten seconds' worth at once. More are closed unread. 0: no limit."`
	MaxUnauthenticated  int           `group:"access" default:"1024" help:"With --rights: most open sockets whose clients were not let in yet; one address may have an eighth of them. More are closed unread."`
	MaxHeaderBytes      int           `group:"access" default:"16384" help:"Longest HTTP header of a client, in bytes. A longer one is answered 431."`
	FirstMessageTimeout time.Duration `group:"access" default:"30s" help:"Longest wait for the first sign of life of a new connection, such as the answer to a ping sent after half of it. Then it is closed with 1008. 0: no limit."`
	MessageTimeout      time.Duration `group:"access" default:"20s" help:"Longest time from the first to the last byte of a message. Then its connection is closed with 1008. 0: no limit."`
	IdleTimeout         time.Duration `group:"access" default:"0s" help:"How long a connection without subscriptions may go without a request. Then it is closed with 1001. 0: no limit."`
}

// The floods of lines that anybody could cause are bounded: so many a second for
// refused logins, and for calls that are refused for want of a right.
const auditedLogins, auditedRefusals = 10, 100

// auditQueue is how many lines may wait for the log: some tenths of a second of all
// there is at full speed.
const auditQueue = 16384

// addressShare is the part of MaxUnauthenticated that one address may have.
const addressShare = 8

// Authenticated reports whether clients must say who they are.
func (c *Config) Authenticated() bool { return c.Rights != "" }

func (c *AccessConfig) check() error {
	return cmp.Or(
		c.checkTokens(),
		notNegative("jwt-leeway", c.JWTLeeway),
		atMost("jwt-leeway", c.JWTLeeway, 10*time.Minute),
		c.checkOrigins(),
		oneOf("missing-origin", c.MissingOrigin, "allow", "refuse"),
		oneOf("audit", c.Audit, "off", "refusals", "changes", "all"),
		notNegative("signer-rate", c.SignerRate),
		notNegative("address-connections", c.AddressConnections),
		notNegative("address-rate", c.AddressRate),
		atLeast("max-unauthenticated", c.MaxUnauthenticated, addressShare),
		atLeast("max-header-bytes", c.MaxHeaderBytes, 4096),
		atMost("max-header-bytes", c.MaxHeaderBytes, 1<<20),
		zeroOrAtLeast("first-message-timeout", c.FirstMessageTimeout, 100*time.Millisecond),
		zeroOrAtLeast("message-timeout", c.MessageTimeout, 100*time.Millisecond),
		zeroOrAtLeast("idle-timeout", c.IdleTimeout, 100*time.Millisecond),
	)
}

// checkTokens leaves it to package jwt to read the keys.
func (c *AccessConfig) checkTokens() error {
	if c.JWTKeys == "" {
		return cmp.Or(needs("jwt-issuer", c.JWTIssuer, "jwt-keys"), needs("jwt-audience", c.JWTAudience, "jwt-keys"), needs("jwt-prefix", c.JWTPrefix, "jwt-keys"))
	}
	if c.Rights == "" {
		return settingErrorf("jwt-keys", "needs --rights beside it, which says what the principals of tokens may do")
	}
	if err := cmp.Or(setWithKeys("jwt-issuer", c.JWTIssuer), setWithKeys("jwt-audience", c.JWTAudience), setWithKeys("jwt-claim", c.JWTClaim)); err != nil {
		return err
	}
	for method := range strings.SplitSeq(c.JWTMethods, ",") {
		if !slices.Contains(jwt.Methods, method) {
			return settingErrorf("jwt-methods", "%q must be some of %s", c.JWTMethods, strings.Join(jwt.Methods, ","))
		}
	}
	return nil
}

func setWithKeys(flag, value string) error {
	if value == "" {
		return settingErrorf(flag, "must be set with --jwt-keys")
	}
	return nil
}

// needs refuses a setting that means nothing without another one.
func needs(flag, value, other string) error {
	if value == "" {
		return nil
	}
	return settingErrorf(flag, "needs --%s beside it", other)
}

// checkOrigins asks for origins as browsers write them: they are compared by the letter.
func (c *AccessConfig) checkOrigins() error {
	for _, o := range c.origins() {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" || o != u.Scheme+"://"+u.Host || o != strings.ToLower(o) || strings.Contains(o, "*") {
			return settingErrorf("origins", "%q must be SCHEME://HOST or SCHEME://HOST:PORT in lower case, such as https://app.example", o)
		}
	}
	return nil
}

func (c *AccessConfig) origins() []string {
	if c.Origins == "" {
		return nil
	}
	return strings.Split(c.Origins, ",")
}

// pages are the origins as the server asks for them.
func (c *AccessConfig) pages() ws.Origins {
	return ws.Origins{Allowed: c.origins(), RefuseMissing: c.MissingOrigin == "refuse"}
}

func (c *AccessConfig) addresses() quota.AddressConfig {
	return quota.AddressConfig{
		Sockets:     quota.Rate{PerSecond: float64(c.AddressRate), Burst: 10 * c.AddressRate},
		Connections: c.AddressConnections,
		Waiting:     c.MaxUnauthenticated, WaitingEach: c.MaxUnauthenticated / addressShare,
	}
}

func (c *AccessConfig) signers() quota.SignerConfig {
	return quota.SignerConfig{Rate: quota.Rate{PerSecond: float64(c.SignerRate), Burst: c.SignerRate}}
}

func (c *AccessConfig) auditLevel() audit.Level {
	// It cannot fail: check admits only words that it knows.
	level, _ := audit.ParseLevel(c.Audit)
	return level
}

// gate is what the Gate is opened with.
func (c *AccessConfig) gate() access.Config {
	pages := c.pages()
	cfg := access.Config{Rights: c.Rights, AllowOrigin: pages.Allow}
	if c.JWTKeys != "" {
		cfg.Tokens = &jwt.Config{
			Methods: strings.Split(c.JWTMethods, ","), Issuer: c.JWTIssuer, Audience: c.JWTAudience, Keys: c.JWTKeys,
			Claim: c.JWTClaim, Prefix: c.JWTPrefix, Leeway: c.JWTLeeway,
		}
	}
	return cfg
}
