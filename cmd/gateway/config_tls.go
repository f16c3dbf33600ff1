package main

import (
	"cmp"
	"slices"
	"strings"
)

// TLSConfig is how connections are protected on their way, and the private side.
type TLSConfig struct {
	TLSCert         string `name:"tls-cert" group:"tls" placeholder:"FILE" help:"Certificate chain in PEM, this gateway's own first. With it --listen speaks TLS 1.2 and later, and so does --admin-listen beyond loopback. Read again within seconds after it changes, as are the other files here."`
	TLSKey          string `name:"tls-key" group:"tls" placeholder:"FILE" help:"Private key of --tls-cert, in PEM."`
	TLSClientCA     string `name:"tls-client-ca" group:"tls" placeholder:"FILE" help:"Authorities, in PEM, whose client certificates are accepted. Without it nobody is asked for one."`
	TLSClientAuth   string `name:"tls-client-auth" group:"tls" default:"request" help:"With --tls-client-ca. request: clients may show a certificate. require: they must, and so must other nodes, which show their --tls-cert."`
	TLSClientPrefix string `name:"tls-client-prefix" group:"tls" placeholder:"TEXT" help:"Text put before the name in a client certificate, so that its issuer cannot name the principal of an API key or a token."`
	NodeCA          string `name:"node-ca" group:"tls" placeholder:"FILE" help:"Authorities, in PEM, that other nodes are trusted by when they are reached over wss. Default: those of the system."`
	InsecureListen  string `group:"tls" placeholder:"WHAT" help:"Protections that an address beyond loopback may lack: no-tls, no-auth or no-tls,no-auth. Everyone who can reach it can then do harm. Default: none, and the start is refused."`

	AdminKey   string `group:"tls" placeholder:"KEY" help:"What /metrics, /debug/pprof/, /engine, /signers and /shards ask for as Authorization: Bearer, 16 to 512 characters; a must for --admin-listen beyond loopback. /healthz and /readyz never ask, and then give no reasons. Give it by the environment or the file."`
	AdminHosts string `group:"tls" placeholder:"NAMES" help:"Names by which requests may ask --admin-listen without the key, such as gateway-1.internal,gateway-2.internal. Addresses and localhost always may: no web page can make those lead elsewhere."`
	Pprof      string `group:"tls" default:"off" help:"on: profiles of the process under /debug/pprof/ of --admin-listen."`
}

// What InsecureListen may name.
const (
	withoutTLS  = "no-tls"
	withoutAuth = "no-auth"
)

func (c *TLSConfig) check() error {
	switch {
	case c.TLSCert == "" && c.TLSKey != "":
		return settingErrorf("tls-key", "needs --tls-cert beside it")
	case c.TLSCert != "" && c.TLSKey == "":
		return settingErrorf("tls-cert", "needs --tls-key beside it")
	case c.TLSCert == "" && c.TLSClientCA != "":
		return settingErrorf("tls-client-ca", "needs --tls-cert: only TLS shows certificates")
	case c.TLSClientCA == "" && c.TLSClientPrefix != "":
		return settingErrorf("tls-client-prefix", "needs --tls-client-ca beside it")
	case c.TLSClientCA == "" && c.TLSClientAuth == "require":
		return settingErrorf("tls-client-auth", "require needs --tls-client-ca, which says whose certificates")
	}
	return cmp.Or(
		oneOf("tls-client-auth", c.TLSClientAuth, "request", "require"),
		insecureWords(c.InsecureListen),
		secret("admin-key", c.AdminKey),
		c.checkAdminHosts(),
		oneOf("pprof", c.Pprof, "on", "off"),
	)
}

func (c *TLSConfig) checkAdminHosts() error {
	for _, host := range c.adminHosts() {
		if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(":/*[]", r) }) {
			return settingErrorf("admin-hosts", "%q must be a name without a port, such as gateway-1.internal", host)
		}
	}
	return nil
}

func (c *TLSConfig) adminHosts() []string {
	if c.AdminHosts == "" {
		return nil
	}
	return strings.Split(strings.ToLower(c.AdminHosts), ",")
}

// checkProtection refuses what says two things about who may come in. An exception that
// is not needed would hold, unsaid, on the day when what it does without is taken away.
func (c *Config) checkProtection() error {
	switch {
	case c.TLSCert != "" && c.doesWithout(withoutTLS):
		return settingErrorf("insecure-listen", "does without TLS (no-tls), and --tls-cert is given: take one of them away")
	case c.Authenticated() && c.doesWithout(withoutAuth):
		return settingErrorf("insecure-listen", "does without authentication (no-auth), and --rights is given: take one of them away")
	case c.TLSClientCA != "" && c.TLSClientAuth == "request" && !c.Authenticated():
		return settingErrorf("tls-client-ca", "means nothing without --rights, as nobody needs a certificate: --tls-client-auth=require refuses who has none")
	}
	return nil
}

func insecureWords(value string) error {
	if value == "" {
		return nil
	}
	for word := range strings.SplitSeq(value, ",") {
		if word != withoutTLS && word != withoutAuth {
			return settingErrorf("insecure-listen", "%q must be some of %s,%s", value, withoutTLS, withoutAuth)
		}
	}
	return nil
}

// doesWithout reports whether an address beyond loopback may do without what.
func (c *TLSConfig) doesWithout(what string) bool {
	return slices.Contains(strings.Split(c.InsecureListen, ","), what)
}

// checkExposure is asked when the addresses are bound, and so known. Beyond loopback
// a gateway is protected, or somebody has said that it need not be.
func (c *Config) checkExposure(listen, admin boundAddr) error {
	noTLS := c.TLSCert == "" && !c.doesWithout(withoutTLS)
	if !listen.loopback() {
		var needs, without []string
		if noTLS {
			needs, without = append(needs, "TLS (--tls-cert and --tls-key)"), append(without, withoutTLS)
		}
		if !c.Authenticated() && !c.doesWithout(withoutAuth) {
			needs, without = append(needs, "authentication (--rights)"), append(without, withoutAuth)
		}
		if len(needs) > 0 {
			return settingErrorf("listen", "%s is beyond loopback and needs %s, or --insecure-listen=%s to do without",
				c.Listen, strings.Join(needs, " and "), strings.Join(without, ","))
		}
	}
	switch {
	case admin.loopback():
	case c.AdminKey == "":
		return settingErrorf("admin-listen", "%s is beyond loopback and needs --admin-key", c.AdminListen)
	case noTLS:
		return settingErrorf("admin-listen", "%s is beyond loopback and needs TLS (--tls-cert and --tls-key), or --insecure-listen=%s to do without", c.AdminListen, withoutTLS)
	}
	return nil
}
