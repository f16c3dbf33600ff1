package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"

	"noncegate/client"
	"noncegate/internal/tlsfiles"
)

// GatewayURL is which gateway the commands talk to, and with which credential.
type GatewayURL struct {
	URL   string `name:"url" default:"ws://127.0.0.1:8080/ws"`
	Token string `placeholder:"TOKEN"`
	Trust
	Cert    string `needs:"cert-key" placeholder:"FILE" help:"Client certificate in PEM, for a gateway that asks for one."`
	CertKey string `needs:"cert" placeholder:"FILE" help:"Private key of --cert."`
}

// Trust is the authority by which a gateway is trusted.
type Trust struct {
	CA string `name:"ca" placeholder:"FILE" help:"Authorities, in PEM, that the gateway is trusted by. Default: those of the system."`
}

// Validate reports a URL or a credential that cannot be used.
func (g *GatewayURL) Validate() error {
	if err := webSocketURL("url", g.URL); err != nil {
		return err
	}
	if u, err := url.Parse(g.URL); err == nil && u.User != nil {
		if key, _ := u.User.Password(); key == "" {
			return settingErrorf("url", "has a user that is not NAME:KEY, with an API key; the name may be any")
		}
		if g.Token != "" {
			return settingErrorf("token", "and a user in --url are two credentials; give one of them")
		}
	}
	return nil
}

// dial connects with the settings of cfg and those of the command line.
func (g *GatewayURL) dial(ctx context.Context, cfg client.Config) (*client.Client, error) {
	var err error
	if cfg.TLS, err = g.config(g.Cert, g.CertKey); err != nil {
		return nil, err
	}
	if g.Token != "" {
		cfg.Header = http.Header{"Authorization": {"Bearer " + g.Token}}
	}
	return client.Dial(ctx, g.URL, cfg)
}

// config is the client's side of TLS. The error is about the file that is wrong.
func (t *Trust) config(cert, key string) (*tls.Config, error) {
	c, err := tlsfiles.Client(t.CA, "", "")
	if err != nil {
		return nil, settingErrorf("ca", "cannot be used: %v", err)
	}
	if cert == "" {
		return c, nil
	}
	with, err := tlsfiles.Client("", cert, key)
	if err != nil {
		return nil, settingErrorf("cert", "cannot be used: %v", err)
	}
	c.Certificates = with.Certificates
	return c, nil
}
