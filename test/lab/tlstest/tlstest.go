// Package tlstest makes certificate authorities, certificates and the configurations of clients for tests: right ones, and by
// [Leaf] wrong ones, such as for another host or past their time.
//
// Everything is made for one test, with P-256 keys and the clock of the machine, valid for an hour unless a Leaf says otherwise.
// Files are in folders of the test and end with it; what cannot be made fails the test. Nothing is revoked, and there are no
// intermediate authorities. The package starts no goroutine, and a test's values belong to its own.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/test/lab/expect"
)

// Authority is a self-signed certificate authority of one test.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its certificate.
	PEM []byte
}

// New makes an authority.
func New(tb testing.TB, name string) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	expect.Must(tb, err)
	a.cert, err = x509.ParseCertificate(der)
	expect.Must(tb, err)
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Leaf is what a certificate says. The zero value is that of a server at 127.0.0.1, ::1 and localhost, for the next hour.
type Leaf struct {
	Name     string   // common name
	Hosts    []string // instead of those above
	URIs     []string
	Client   bool // for clients and servers, not for servers only
	NotAfter time.Time
}

// Issue makes a certificate and its key, in PEM.
func (a *Authority) Issue(l Leaf) (cert, key []byte) {
	a.tb.Helper()
	if l.Hosts == nil {
		l.Hosts = []string{"127.0.0.1", "::1", "localhost"}
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: l.Name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: l.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if l.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	for _, raw := range l.URIs {
		u, err := url.Parse(raw)
		expect.Must(a.tb, err)
		template.URIs = append(template.URIs, u)
	}
	pair := newKey(a.tb)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, pair.Public(), a.key)
	expect.Must(a.tb, err)
	raw, err := x509.MarshalPKCS8PrivateKey(pair)
	expect.Must(a.tb, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// WriteCA writes the authority's certificate to a file of its own.
func (a *Authority) WriteCA() (file string) {
	a.tb.Helper()
	return write(a.tb, a.tb.TempDir(), "ca.pem", a.PEM)
}

// Write makes a certificate and writes it and its key to files of their own.
func (a *Authority) Write(l Leaf) (certFile, keyFile string) {
	a.tb.Helper()
	cert, key := a.Issue(l)
	dir := a.tb.TempDir()
	return write(a.tb, dir, "cert.pem", cert), write(a.tb, dir, "key.pem", key)
}

// Client is a client's configuration that trusts the authority alone. With a leaf it shows such a certificate.
func (a *Authority) Client(show ...Leaf) *tls.Config {
	a.tb.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	for _, l := range show {
		pair, err := tls.X509KeyPair(a.Issue(l))
		expect.Must(a.tb, err)
		c.Certificates = append(c.Certificates, pair)
	}
	return c
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.Must(tb, err)
	return key
}

func serial() *big.Int { return big.NewInt(serials.Add(1)) }

var serials atomic.Int64

func write(tb testing.TB, dir, name string, data []byte) string {
	file := filepath.Join(dir, name)
	expect.Must(tb, os.WriteFile(file, data, 0o600))
	return file
}
