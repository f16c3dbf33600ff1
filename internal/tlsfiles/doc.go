// Package tlsfiles keeps the certificates and keys of TLS, and reads their files again
// when they change, so that certificates can be renewed while a gateway runs.
//
// A Server has a certificate chain with its key, and may have the authorities of
// client certificates. Authorities are those that a dialler trusts.
//
// It promises: each handshake uses the files in force at that time. A file that cannot
// be used, such as a key of another certificate, is an error when it is opened; later
// the error is logged once, Stale reports it, and the previous files stay in force.
//
// It does not promise that certificates are valid: it serves an expired one, and
// NotAfter gives its end. Established sessions continue when the files change.
//
// Each Server and each Authorities owns the goroutine of a reload.Value, which Stop ends
// and waits for. All other methods may be called from any goroutine; none waits for a
// reading.
package tlsfiles
