package main

import (
	"net/url"
	"strings"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/jwt"
	"noncegate/internal/access/quota"
	"noncegate/ws"
)

// AccessConfig is which clients may connect, and how many.
type AccessConfig struct {
	Rights string `placeholder:"FILE"`

	JWTKeys     string `name:"jwt-keys" placeholder:"FILE" needs:"rights,jwt-issuer,jwt-audience"`
	JWTIssuer   string `name:"jwt-issuer" placeholder:"NAME" needs:"jwt-keys"`
	JWTAudience string `name:"jwt-audience" placeholder:"NAME" needs:"jwt-keys"`

	JWTMethods string `name:"jwt-methods" default:"ES256,EdDSA,RS256" some:"RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA"`

	JWTClaim  string        `name:"jwt-claim" default:"sub"`
	JWTPrefix string        `name:"jwt-prefix" placeholder:"TEXT" needs:"jwt-keys"`
	JWTLeeway time.Duration `name:"jwt-leeway" default:"1m" min:"0s" max:"10m"`

	Origins       string `placeholder:"ORIGINS"`
	MissingOrigin string `default:"allow" oneof:"allow,refuse"`
	Audit         string `default:"refusals" oneof:"off,refusals,changes,all"`

	SignerRate          int           `default:"0" min:"0"`
	AddressConnections  int           `default:"1000" min:"0"`
	AddressRate         int           `default:"50" min:"0"`
	MaxUnauthenticated  int           `default:"1024" min:"8"`
	MaxHeaderBytes      int           `default:"16384" min:"4096" max:"1048576"`
	FirstMessageTimeout time.Duration `default:"30s" min:"100ms" or:"0"`
	MessageTimeout      time.Duration `default:"20s" min:"100ms" or:"0"`
	IdleTimeout         time.Duration `default:"0s" min:"100ms" or:"0"`
}

// The floods of lines that any client could cause are bounded: so many a second for
// refused logins, and for calls that are refused for want of a right.
const auditedLogins, auditedRefusals = 10, 100

// auditQueue is how many lines may wait for the log: some tenths of a second of all
// there is at full speed.
const auditQueue = 16384

// addressShare is the part of MaxUnauthenticated that one address may have.
const addressShare = 8

// Authenticated reports whether clients must authenticate.
func (c *Config) Authenticated() bool { return c.Rights != "" }

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
