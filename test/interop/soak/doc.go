// Command soak lets workers of a relayer pay from fifty accounts of one chain while everything around them fails, and then looks at the
// chain: every nonce of every account is mined without a gap, and every payment was executed exactly once.
//
// The chain is a go-ethereum node with its real pool and a block each second, behind two proxies that lag, time out, refuse, lose answers
// and close connections in turns; now and then its pool loses transactions, or a few blocks are replaced. Two gateways over one private
// PostgreSQL are killed and started again. Eight workers take payments from a queue and crash, send late, send twice, replace, forget to
// mark; each keeps nothing over a crash but the queue's claims and a journal of signed transactions, written before they are sent. A
// watcher subscribes to gaps and repairs them. Nobody does anything by hand.
//
// With --who sdk-viem and sdk-ethers each worker is a process of Node.js that pays with our package for TypeScript, and is killed where it
// crashes; what it writes down is what the package's signed option told. With the others the same workers meet the same failures with
// another source of nonces: viem's createNonceManager and ethers' NonceManager in one process of Node.js that serves all workers and is
// never killed, or a Redis INCR for each account. What each leaves behind is the table.
//
// The seed decides what goes wrong and when; how goroutines and processes meet is not
// repeated by it. Everything that a run starts ends with it, also when it is killed.
package main
