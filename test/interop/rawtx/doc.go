// Package rawtx holds the gateway's decoder of raw transactions against go-ethereum's core/types: what the one takes the other must take,
// and read the same in it. It holds tests only, and writes the test vectors of chain/ethereum/rawtx.
package rawtx
