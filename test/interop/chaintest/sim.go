package chaintest

import (
	"cmp"
	"math/big"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/eth/ethconfig"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// modules are the namespaces that a Sim answers over HTTP and WebSocket.
var modules = []string{"eth", "net", "web3", "txpool"}

// SimConfig says what a Sim is like. The zero value is a chain that most tests can use.
type SimConfig struct {
	// Accounts is how many of NewAccounts own 1000 ether at the start; 64 when 0.
	Accounts int
	// FinalLag has the block so many below the head finalized at every new head. With 0 only Finalize moves finality.
	FinalLag uint64
	// ChainID is 1337 when 0.
	ChainID int64
}

// Sim is a node of go-ethereum in this process: its chain, its pool, its block builder and its JSON-RPC server on a port of the loopback
// address, without peers and on an empty disk in memory. What the consensus client does in a real node is done by the test: blocks,
// branches, reorgs and finality come when it says so and never else. All forks to Osaka are active from the start, EIP-7702 and blobs
// with them. The chain begins with the genesis block, which is finalized, and an empty block 1 (before a first block geth answers
// look-ups of unknown hashes with an error). A block's time is the real one, or one second after its parent's where that is later.
//
// When a method of Sim returns, the pool has followed. Its methods may be called from any goroutine, one changes the chain at a time.
type Sim struct {
	*Node
	// Accounts are those that own ether at the start.
	Accounts []Account

	stack *node.Node
	eth   *eth.Ethereum
	lag   uint64
	chain int64
	stop  func()

	settling sync.Mutex // held during Sync of the pool: of two at a time, it forgets the first

	mu    sync.Mutex // held while the chain is changed
	built uint64     // blocks; makes each of them another
}

// StartSim starts a chain of its own, which ends with the test.
func StartSim(t T, config SimConfig) *Sim {
	t.Helper()
	if config.Accounts == 0 {
		config.Accounts = 64
	}
	s := &Sim{Accounts: NewAccounts(config.Accounts), lag: config.FinalLag, chain: config.ChainID}
	if err := s.open(); err != nil {
		t.Fatalf("start a chain: %v", err)
	}
	client := s.stack.Attach()
	s.stop = sync.OnceFunc(func() {
		client.Close()
		if err := s.stack.Close(); err != nil {
			t.Logf("stop the chain: %v", err)
		}
	})
	t.Cleanup(s.stop)
	s.Node = newNode(t, client, s.stack.HTTPEndpoint(), s.stack.WSEndpoint())
	s.settle = s.Settle
	s.begin()
	return s
}

// Stop ends the node, its connections too, and waits for it. It may be called twice, and is called by itself at the end of the test.
func (s *Sim) Stop() { s.stop() }

// open puts the parts of a node together, in the order of ethclient/simulated.
func (s *Sim) open() error {
	stack, err := node.New(nodeConfig())
	if err != nil {
		return err
	}
	defer func() {
		if s.stack == nil {
			stack.Close()
		}
	}()
	s.eth, err = eth.New(stack, ethConfig(s.Accounts, s.chain))
	if err != nil {
		return err
	}
	stack.RegisterAPIs([]rpc.API{{
		Namespace: "eth",
		Service:   filters.NewFilterAPI(filters.NewFilterSystem(s.eth.APIBackend, filters.Config{})),
	}})
	if err := stack.Start(); err != nil {
		return err
	}
	s.eth.SetSynced()
	s.stack = stack
	return nil
}

func nodeConfig() *node.Config {
	config := node.DefaultConfig
	config.DataDir = "" // in memory
	config.P2P = p2p.Config{NoDiscovery: true}
	// One server on a free port for both.
	config.HTTPHost, config.HTTPPort, config.HTTPModules = "127.0.0.1", 0, modules
	config.WSHost, config.WSPort, config.WSModules = "127.0.0.1", 0, modules
	return &config
}

func ethConfig(accounts []Account, chain int64) *ethconfig.Config {
	c := ethconfig.Defaults
	c.Genesis = genesis(accounts, chain)
	c.SyncMode = ethconfig.FullSync
	c.LogNoHistory = true // logs are searched without an index
	c.TrieCleanCache, c.TrieDirtyCache, c.SnapshotCache, c.DatabaseCache = 16, 16, 0, 16
	c.Miner.Recommit = time.Minute // however slow the machine, a block has all that fits
	c.TxPool.Journal = ""
	// A refusal is answered as such, and what a test drops stays dropped: geth would else answer
	// success, and offer it to the pool again each minute.
	c.TxPool.NoLocals = true
	return &c
}

func genesis(accounts []Account, id int64) *core.Genesis {
	chain := *params.AllDevChainProtocolChanges
	chain.ChainID = big.NewInt(cmp.Or(id, 1337))
	chain.BogotaTime = nil
	alloc := core.SystemContractAllocs()
	for _, a := range accounts {
		alloc[a.Address] = types.Account{Balance: Ether(1000)}
	}
	return &core.Genesis{Config: &chain, GasLimit: ethconfig.Defaults.Miner.GasCeil, Alloc: alloc}
}

// Ether is so many ether in wei.
func Ether(n int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(n), big.NewInt(params.Ether))
}

// begin makes the genesis block final and mines block 1.
func (s *Sim) begin() {
	s.t.Helper()
	s.Finalize(0)
	s.CommitEmpty()
	poll(s.t, "the node has indexed its first block", func() bool { return s.eth.BlockChain().TxIndexDone() })
}

// Settle waits until the pool has taken in whatever was sent and mined before. Sim does so by itself for what is sent by its own methods.
func (s *Sim) Settle() {
	s.t.Helper()
	s.settling.Lock()
	defer s.settling.Unlock()
	s.must("settle the pool", s.eth.TxPool().Sync())
}
