// Package interop shows that programs which know nothing of this repository can
// use the gateway. It holds tests only, and is a module of its own so that
// nobody else has to download what they need.
//
// Two clients are tried: the rpc.Client of go-ethereum, and one written out by
// hand from RFC 6455 on a bare TCP connection. Both talk to the real program,
// built from ../cmd/gateway and run on a SQLite file, or as two nodes on a
// PostgreSQL; nothing of the repository is imported but what starts that. Each test owns
// the process it starts, ends it with SIGTERM, and fails when its exit code is not 0.
//
// Package rawtx below it holds a package of the repository against go-ethereum's.
package interop
