// Package tlsfiles keeps what TLS needs from files, and reads the files again when
// they change: certificates are renewed while a gateway runs.
//
// A Server has a certificate chain with its key, and may have the authorities of
// client certificates. Authorities are those that a dialler trusts. Both look at
// their files every few seconds and compare the contents, because tools replace
// files, links and whole directories, and no notice of the operating system tells
// of all of these. What cannot be used, a key that is not the certificate's among
// it, is an error when it is opened; later it is logged once, Stale says so, and
// what was read before stays in force.
package tlsfiles
