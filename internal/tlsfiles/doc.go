// Package tlsfiles keeps what TLS needs from files, and reads the files again when
// they change: certificates are renewed while a gateway runs.
//
// A Server has a certificate chain with its key, and may have the authorities of
// client certificates. Authorities are those that a dialler trusts.
//
// It promises: each handshake takes what is in force at that time. What cannot be used,
// such as a key that is not the certificate's, is an error when it is opened; later it
// is logged once, Stale says so, and what was read before stays in force.
//
// It does not promise that certificates are valid: one that has expired is served, and
// NotAfter tells when. Sessions that were agreed on go on when the files change.
//
// Each Server and each Authorities owns the goroutine of a reload.Value, which Stop ends
// and waits for. All other methods may be called from any goroutine; none waits for a
// reading.
package tlsfiles
