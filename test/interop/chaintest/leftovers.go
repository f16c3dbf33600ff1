package chaintest

import "go.uber.org/goleak"

// Leftovers are the goroutines that a go-ethereum node leaves behind when it has been stopped, for goleak: those that find out senders
// are a pool of the whole process, the memory of the database of peers is given back up to a second later, and the end of a subscription
// that meets the end of the node waits for ever.
func Leftovers() []goleak.Option {
	const filters = "github.com/ethereum/go-ethereum/eth/filters.(*FilterAPI)."
	return []goleak.Option{
		goleak.IgnoreTopFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache"),
		goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"),
		goleak.IgnoreAnyFunction(filters + "NewHeads.func1"),
		goleak.IgnoreAnyFunction(filters + "Logs.func1"),
		goleak.IgnoreAnyFunction(filters + "NewPendingTransactions.func1"),
	}
}
