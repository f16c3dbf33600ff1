package chaintest

import "go.uber.org/goleak"

// Leftovers are the goroutines that a go-ethereum node leaves behind when it has been
// stopped, for goleak: senders of transactions are recovered by a pool of the whole
// process, and the memory of the database of peers is given back up to a second later.
func Leftovers() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreTopFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache"),
		goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"),
	}
}
