//go:build unix

package patroni

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// The files of the certificate that all members show, and of its key.
const (
	certFile = "server.crt"
	keyFile  = "server.key"
)

// Certificate is what all members show, in PEM. It is its own authority.
func (c *Cluster) Certificate() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certificate
}

// ChangeCertificate has all members show another certificate, of another authority, to connections that come from now on.
func (c *Cluster) ChangeCertificate(ctx context.Context) error {
	err := c.certify()
	for _, m := range c.Members {
		if err == nil {
			err = m.Exec(ctx, `SELECT pg_reload_conf()`)
		}
	}
	return err
}

// certify writes a new certificate and its key.
func (c *Cluster) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: fmt.Sprint("PostgreSQL since ", now.UnixNano())},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.certificate = text("CERTIFICATE", cert)
	return errors.Join(c.room.WriteFile(certFile, c.certificate), c.room.WriteFile(keyFile, text("PRIVATE KEY", private)))
}
