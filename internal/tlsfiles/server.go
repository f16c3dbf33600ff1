package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Config is what a Server reads.
type Config struct {
	// Cert is a file with the certificate chain in PEM, the server's own first, and
	// Key one with its private key.
	Cert, Key string
	// ClientCA is a file with the authorities, in PEM, whose client certificates are
	// accepted. "": clients are not asked for one.
	ClientCA string
	// RequireClient refuses clients without a certificate. Otherwise they may come
	// without one; a certificate of another authority is refused either way.
	RequireClient bool
	// Every is how often the files are read. 0: 5s.
	Every time.Duration
}

// Server is the server's side of TLS.
type Server struct{ files[material] }

// material is what the files held when they were last good.
type material struct {
	pair     tls.Certificate
	notAfter time.Time
	config   *tls.Config // with what clients are asked for
	plain    *tls.Config // without
}

// Open reads the files. An error names the file and what is wrong with it.
func Open(cfg Config, log *slog.Logger) (*Server, error) {
	names := []string{cfg.Cert, cfg.Key}
	if cfg.ClientCA != "" {
		names = append(names, cfg.ClientCA)
	}
	f, err := open(names, cfg.Every, log, cfg.parse)
	if err != nil {
		return nil, err
	}
	return &Server{f}, nil
}

// parse makes the material of the files' contents, in the order of Open.
func (cfg *Config) parse(contents [][]byte) (*material, error) {
	pair, err := keyPair(cfg.Cert, cfg.Key, contents[0], contents[1])
	if err != nil {
		return nil, err
	}
	m := &material{pair: pair, notAfter: pair.Leaf.NotAfter}
	m.config = serverConfig()
	m.config.Certificates = []tls.Certificate{pair}
	m.plain = m.config.Clone()
	if cfg.ClientCA == "" {
		return m, nil
	}
	if m.config.ClientCAs, err = authorities(cfg.ClientCA, contents[2]); err != nil {
		return nil, err
	}
	m.config.ClientAuth = tls.VerifyClientCertIfGiven
	if cfg.RequireClient {
		m.config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	// A resumed session would bring a certificate whose authority was taken out of
	// the file since.
	m.config.SessionTicketsDisabled = true
	return m, nil
}

// serverConfig has what every server of this program has in common. WebSockets are
// opened over HTTP/1.1 only. Records are of full size from the start: what the
// writer joins into one write is to be one record and one system call.
func serverConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true}
}

// keyPair is tls.X509KeyPair with errors that name the file.
func keyPair(certFile, keyFile string, cert, key []byte) (tls.Certificate, error) {
	if err := hasPEM(certFile, cert, "CERTIFICATE"); err != nil {
		return tls.Certificate{}, err
	}
	if err := hasPEM(keyFile, key, "PRIVATE KEY"); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %s", certFile, keyFile, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return pair, nil
}

// hasPEM looks for a block whose type ends in kind.
func hasPEM(name string, data []byte, kind string) error {
	for {
		block, rest := pem.Decode(data)
		switch {
		case block == nil:
			return fmt.Errorf("%s: has no %s in PEM", name, kind)
		case strings.HasSuffix(block.Type, kind):
			return nil
		}
		data = rest
	}
}

// authorities reads every certificate of data; one that cannot be read is an error
// and not passed over.
func authorities(name string, data []byte) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "x509: "))
		}
		pool.AddCert(cert)
		found = true
	}
	if !found {
		return nil, fmt.Errorf("%s: has no CERTIFICATE in PEM", name)
	}
	return pool, nil
}

// TLS is the configuration of a listener. Each handshake takes what is in force then.
func (s *Server) TLS() *tls.Config {
	c := serverConfig()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.value.Get().config, nil }
	return c
}

// Plain is TLS for a listener that asks clients for no certificate.
func (s *Server) Plain() *tls.Config {
	c := serverConfig()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.value.Get().plain, nil }
	return c
}

// NotAfter is when the certificate in force ends.
func (s *Server) NotAfter() time.Time { return s.value.Get().notAfter }

// ClientCertificate is for tls.Config.GetClientCertificate of a node that dials
// another: it shows the certificate in force if the other side would take it as a
// client's, and none otherwise.
func (s *Server) ClientCertificate(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair := s.value.Get().pair
	if !forClients(pair.Leaf) || asked.SupportsCertificate(&pair) != nil {
		return new(tls.Certificate), nil
	}
	return &pair, nil
}

// forClients reports whether a certificate may be used by a client.
func forClients(c *x509.Certificate) bool {
	return len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.ContainsFunc(c.ExtKeyUsage, func(u x509.ExtKeyUsage) bool {
		return u == x509.ExtKeyUsageAny || u == x509.ExtKeyUsageClientAuth
	})
}
