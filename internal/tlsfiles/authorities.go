package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"time"

	"noncegate/internal/reload"
)

// Authorities are the certificates that a dialler trusts, in a file.
type Authorities struct{ files[x509.CertPool] }

// OpenAuthorities reads a file of certificates in PEM, and again every so often (0: 5s).
func OpenAuthorities(file string, every time.Duration, log *slog.Logger) (*Authorities, error) {
	f, err := open([]string{file}, every, log, func(contents [][]byte) (*x509.CertPool, error) {
		return authorities(file, contents[0])
	})
	if err != nil {
		return nil, err
	}
	return &Authorities{f}, nil
}

// Pool is what is trusted now.
func (a *Authorities) Pool() *x509.CertPool { return a.value.Get() }

// Client is the client's side of TLS for a program that runs once: it trusts the
// authorities of caFile ("": those of the system), and shows the certificate of
// certFile and keyFile where a server asks for one ("": none).
func Client(caFile, certFile, keyFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		data, err := reload.ReadFile(caFile, maxFile)
		if err != nil {
			return nil, err
		}
		if c.RootCAs, err = authorities(caFile, data); err != nil {
			return nil, err
		}
	}
	if certFile == "" {
		return c, nil
	}
	cert, err := reload.ReadFile(certFile, maxFile)
	if err != nil {
		return nil, err
	}
	key, err := reload.ReadFile(keyFile, maxFile)
	if err != nil {
		return nil, err
	}
	pair, err := keyPair(certFile, keyFile, cert, key)
	c.Certificates = []tls.Certificate{pair}
	return c, err
}
