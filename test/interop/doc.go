// Package interop shows that programs which know nothing of this repository can use the gateway. It holds tests only, and is a module of
// its own so that nobody else has to download what they need.
//
// What is tried: the clients of go-ethereum, viem, ethers and Foundry, and one written out by hand from RFC 6455 on a bare TCP
// connection. All talk to the real program, built from ../cmd/gateway and run on a SQLite file, or as two nodes on a PostgreSQL; nothing
// of the repository is imported but what starts that, and the Go client where that is tried. Each test owns the process it starts, ends
// it with SIGTERM, and fails when its exit code is not 0. Tests run beside each other: most of them wait for blocks.
//
// Package rawtx below it holds a package of the repository against go-ethereum's.
package interop
