package main

import (
	"cmp"
	"slices"
	"strings"
)

// TLSConfig is how connections are protected on their way, and the private side.
type TLSConfig struct {
	TLSCert         string `name:"tls-cert" placeholder:"FILE" needs:"tls-key"`
	TLSKey          string `name:"tls-key" placeholder:"FILE" needs:"tls-cert"`
	TLSClientCA     string `name:"tls-client-ca" placeholder:"FILE" needs:"tls-cert"`
	TLSClientAuth   string `name:"tls-client-auth" default:"request" oneof:"request,require"`
	TLSClientPrefix string `name:"tls-client-prefix" placeholder:"TEXT" needs:"tls-client-ca"`
	NodeCA          string `name:"node-ca" placeholder:"FILE"`
	InsecureListen  string `placeholder:"WHAT" some:"no-tls,no-auth"`

	AdminKey   string `placeholder:"KEY"`
	AdminHosts string `placeholder:"NAMES"`
	Console    string `default:"on" oneof:"on,read,off"`
	Pprof      string `default:"off" oneof:"on,off"`
}

// What InsecureListen may name.
const (
	withoutTLS  = "no-tls"
	withoutAuth = "no-auth"
)

func (c *TLSConfig) check() error {
	if c.TLSClientCA == "" && c.TLSClientAuth == "require" {
		return settingErrorf("tls-client-auth", "require needs --tls-client-ca, which says whose certificates")
	}
	return cmp.Or(secret("admin-key", c.AdminKey), c.checkAdminHosts())
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

// checkProtection refuses settings that contradict one another about the clients that may come in. An exception that
// is not needed would hold, unsaid, on the day when what it does without is taken away.
func (c *Config) checkProtection() error {
	switch {
	case c.TLSCert != "" && c.doesWithout(withoutTLS):
		return settingErrorf("insecure-listen", "does without TLS (no-tls), and --tls-cert is given: take one of them away")
	case c.Authenticated() && c.doesWithout(withoutAuth):
		return settingErrorf("insecure-listen", "does without authentication (no-auth), and --rights is given: take one of them away")
	case c.TLSClientCA != "" && c.TLSClientAuth == "request" && !c.Authenticated():
		return settingErrorf("tls-client-ca", "means nothing without --rights, as nobody needs a certificate: "+
			"--tls-client-auth=require refuses who has none")
	}
	return nil
}

// doesWithout reports whether an address beyond loopback may do without what.
func (c *TLSConfig) doesWithout(what string) bool {
	return slices.Contains(strings.Split(c.InsecureListen, ","), what)
}

// checkExposure is asked when the addresses are bound, and so known. Beyond loopback
// a gateway is protected, or a setting says that it need not be.
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
		return settingErrorf("admin-listen", "%s is beyond loopback and needs TLS (--tls-cert and --tls-key), "+
			"or --insecure-listen=%s to do without", c.AdminListen, withoutTLS)
	}
	return nil
}
