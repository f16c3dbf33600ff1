// Package access is how the connections of a load are let in.
package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"noncegate/client"
)

// Access is what connections show, and whom they trust. The zero Access shows nothing,
// and trusts the certificates of the system. It is not to be changed once it is used.
type Access struct {
	Header http.Header // sent with each upgrade
	TLS    *tls.Config // of wss addresses
}

// New makes the Access of an API key or another Bearer token, "" for none, and of a file
// with the certificates of the authorities that are trusted, "" for those of the system.
func New(token, caFile string) (Access, error) {
	var a Access
	if token != "" {
		a.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	if caFile == "" {
		return a, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return Access{}, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return Access{}, fmt.Errorf("%s: %w", caFile, errors.New("there is no certificate in PEM form in it"))
	}
	a.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return a, nil
}

// Client puts the Access into the settings of a client.
func (a Access) Client(c client.Config) client.Config {
	c.Header, c.TLS = a.Header, a.TLS
	return c
}
