package chaintest

import (
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/txpool/legacypool"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

// send sends a payment of the account's nonce, which the node must take.
func send(t *testing.T, n *Node, from Account, p Payment) *types.Transaction {
	t.Helper()
	tx := n.Sign(from, p)
	if err := n.Send(tx); err != nil {
		t.Fatalf("send nonce %d: %v", p.Nonce, err)
	}
	return tx
}

// wantNonces compares an account's two counts.
func wantNonces(t *testing.T, n *Node, a Account, latest, pending uint64) {
	t.Helper()
	if l, p := n.Nonce(a.Address), n.PendingNonce(a.Address); l != latest || p != pending {
		t.Errorf("counts are %d mined and %d pending, want %d and %d", l, p, latest, pending)
	}
}

func wantWhere(t *testing.T, n *Node, tx *types.Transaction, want string) {
	t.Helper()
	if got := n.Where(tx.Hash()); got != want {
		t.Errorf("transaction of nonce %d is %s, want %s", tx.Nonce(), got, want)
	}
}

func TestWhatIsSentIsMinedWhenTheTestSaysSo(t *testing.T) {
	s := StartSim(t, SimConfig{ChainID: 4711})
	a, b := s.Accounts[0], s.Accounts[1]
	number, _ := s.Head()
	tx := send(t, s.Node, a, Payment{To: b.Address, Value: Ether(3)})
	wantNonces(t, s.Node, a, 0, 1)
	wantWhere(t, s.Node, tx, InPool)
	if r := s.Receipt(tx.Hash()); r != nil {
		t.Errorf("a receipt before it was mined: %+v", r)
	}
	s.CommitEmpty()
	wantNonces(t, s.Node, a, 0, 1)
	block := s.Commit()
	wantNonces(t, s.Node, a, 1, 1)
	wantWhere(t, s.Node, tx, Mined)
	r := s.Receipt(tx.Hash())
	if r == nil || r.Status != types.ReceiptStatusSuccessful || r.BlockHash != block || r.BlockNumber.Uint64() != number+2 {
		t.Errorf("the receipt is %+v, want one of block %d, %v", r, number+2, block)
	}
	if got, want := s.Balance(b.Address), Ether(1003); got.Cmp(want) != 0 {
		t.Errorf("the payee has %v, want %v", got, want)
	}
	if s.ChainID().Uint64() != 4711 || len(s.Accounts) != 64 {
		t.Errorf("chain %v with %d accounts, want 4711 with 64", s.ChainID(), len(s.Accounts))
	}
	for i, account := range s.Accounts {
		if i > 1 && s.Balance(account.Address).Cmp(Ether(1000)) != 0 {
			t.Errorf("account %d has %v", i, s.Balance(account.Address))
		}
	}
}

func TestAccountsAreTheSameInEveryRun(t *testing.T) {
	if got, want := NewAccount(0).Address, common.HexToAddress("0x8112F03C3fE661D887dfF026316C0AB8884ae109"); got != want {
		t.Errorf("account 0 is %v, want %v", got, want)
	}
}

func TestANodeIsAskedOverHTTPAndWebSocket(t *testing.T) {
	s := StartSim(t, SimConfig{})
	for _, url := range []string{s.URL(), s.WS()} {
		if !strings.Contains(url, "//127.0.0.1:") {
			t.Errorf("the address is %s", url)
		}
		client, err := rpc.DialContext(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		eth := ethclient.NewClient(client)
		if id, err := eth.ChainID(t.Context()); err != nil || id.Cmp(s.ChainID()) != 0 {
			t.Errorf("%s: chain %v, %v", url, id, err)
		}
	}
	eth, err := ethclient.DialContext(t.Context(), s.WS())
	if err != nil {
		t.Fatal(err)
	}
	defer eth.Close()
	heads := make(chan *types.Header, 8)
	sub, err := eth.SubscribeNewHead(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	for range 3 {
		if want, got := s.Commit(), (<-heads).Hash(); got != want {
			t.Errorf("told of head %v, want %v", got, want)
		}
	}
}

func TestAGapHoldsBackWhatIsAboveIt(t *testing.T) {
	s := StartSim(t, SimConfig{})
	a := s.Accounts[0]
	above := send(t, s.Node, a, Payment{Nonce: 1})
	s.Commit()
	wantNonces(t, s.Node, a, 0, 0)
	wantWhere(t, s.Node, above, InPool)
	send(t, s.Node, a, Payment{Nonce: 0})
	wantNonces(t, s.Node, a, 0, 2)
	s.Commit()
	wantNonces(t, s.Node, a, 2, 2)
}

func TestThePoolIsGethsOwn(t *testing.T) {
	s := StartSim(t, SimConfig{TxPool: func(c *legacypool.Config) { c.AccountQueue = 2 }})
	a := s.Accounts[0]
	first := send(t, s.Node, a, Payment{Nonce: 0})
	for what, tx := range map[string]*types.Transaction{
		"already known":                       first,
		"replacement transaction underpriced": s.Sign(a, Payment{Nonce: 0, Bump: 9}),
		"insufficient funds":                  s.Sign(a, Payment{Nonce: 1, Value: Ether(2000)}),
		"invalid chain id":                    wrongChain(s, a),
	} {
		if err := s.Send(tx); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("refused with %v, want %q", err, what)
		}
	}
	second := send(t, s.Node, a, Payment{Nonce: 0, Bump: 10})
	wantWhere(t, s.Node, first, Nowhere)
	s.Commit()
	wantWhere(t, s.Node, second, Mined)
	if err := s.Send(first); err == nil || !strings.Contains(err.Error(), "nonce too low") {
		t.Errorf("refused with %v, want that the nonce is too low", err)
	}
	// Of what cannot be mined next, no more than AccountQueue stay.
	var queued []*types.Transaction
	for nonce := range uint64(4) {
		queued = append(queued, send(t, s.Node, a, Payment{Nonce: 2 + nonce}))
	}
	for i, want := range []string{InPool, InPool, Nowhere, Nowhere} {
		wantWhere(t, s.Node, queued[i], want)
	}
}

// wrongChain is signed for another chain.
func wrongChain(s *Sim, a Account) *types.Transaction {
	other := *s.Node
	other.chainID = big.NewInt(1)
	return other.Sign(a, Payment{Nonce: 1})
}

func TestAnotherBranchBecomesCanonical(t *testing.T) {
	for _, keep := range []bool{true, false} {
		s := StartSim(t, SimConfig{})
		a, b, c := s.Accounts[0], s.Accounts[1], s.Accounts[2]
		below := send(t, s.Node, c, Payment{})
		s.Commit()
		before := []*types.Transaction{send(t, s.Node, a, Payment{}), send(t, s.Node, b, Payment{})}
		left := s.Commit()
		before = append(before, send(t, s.Node, a, Payment{Nonce: 1}))
		tip := s.Commit()
		height, head := s.Head()
		if head != tip {
			t.Fatalf("the head is %v, want %v", head, tip)
		}
		waiting := send(t, s.Node, c, Payment{Nonce: 1})

		got := s.Reorg(2, keep)
		if number, head := s.Head(); number != height+1 || head != got || head == tip {
			t.Errorf("the head is block %d %v, want %d %v", number, head, height+1, got)
		}
		if hash := s.BlockHash(height - 1); hash == left {
			t.Errorf("block %d is still the one that was left", height-1)
		}
		wantWhere(t, s.Node, below, Mined)
		wantWhere(t, s.Node, waiting, InPool)
		pending, where := uint64(2), InPool
		if !keep {
			pending, where = 0, Nowhere
		}
		wantNonces(t, s.Node, a, 0, pending)
		for _, tx := range before {
			wantWhere(t, s.Node, tx, where)
			if r := s.Receipt(tx.Hash()); r != nil {
				t.Errorf("a receipt of a block that was left: %+v", r)
			}
		}
		s.Commit()
		wantNonces(t, s.Node, a, pending, pending)
		wantNonces(t, s.Node, c, 2, 2)

		// And back to the branch that was left.
		s.Fork(tip)
		if _, head := s.Head(); head != tip {
			t.Errorf("the head is %v, want %v again", head, tip)
		}
		wantNonces(t, s.Node, a, 2, 2)
		for _, tx := range before {
			wantWhere(t, s.Node, tx, Mined)
		}
	}
}

func TestAForkUndoesTheBlocksAboveIt(t *testing.T) {
	s := StartSim(t, SimConfig{})
	a := s.Accounts[0]
	parent := s.CommitEmpty()
	tx := send(t, s.Node, a, Payment{})
	undone := s.Commit()
	s.Fork(parent)
	wantNonces(t, s.Node, a, 0, 1)
	if block := s.Commit(); block == undone || s.Receipt(tx.Hash()).BlockHash != block {
		t.Errorf("the branch's block is %v, that of the receipt %v", block, s.Receipt(tx.Hash()).BlockHash)
	}
}

func TestADeepForkLosesTransactionsAndTooDeepAReorgIsRefused(t *testing.T) {
	s := StartSim(t, SimConfig{})
	parent := s.CommitEmpty()
	tx := send(t, s.Node, s.Accounts[0], Payment{})
	s.Commit()
	s.CommitN(64)
	s.Fork(parent)
	wantWhere(t, s.Node, tx, Nowhere)
	number, _ := s.Head()
	for _, depth := range []int{0, int(number) + 1, 129} {
		node := *s.Node
		said := failing(t, func(f T) {
			s.Node.t = f
			s.Reorg(depth, true)
		})
		*s.Node = node
		if !strings.Contains(said, "want 1 to 128") {
			t.Errorf("a reorg of %d blocks: %q", depth, said)
		}
	}
}

// TestNothingIsLostWhileTheChainIsReorganized has clients that send, one that mines and
// reorgs, all at once: in the end each nonce is mined once.
func TestNothingIsLostWhileTheChainIsReorganized(t *testing.T) {
	s := StartSim(t, SimConfig{})
	const accounts, each = 6, 8
	var clients sync.WaitGroup
	for _, a := range s.Accounts[:accounts] {
		clients.Go(func() {
			client := dial(t, s.WS())
			for nonce := range uint64(each) {
				if err := client.SendTransaction(t.Context(), s.Sign(a, Payment{Nonce: nonce})); err != nil {
					t.Errorf("nonce %d: %v", nonce, err)
				}
			}
		})
	}
	for i := range 12 {
		if s.Commit(); i%3 == 2 {
			s.Reorg(1+i%2, true)
		}
	}
	clients.Wait()
	s.Settle()
	for range each {
		s.Commit()
	}
	for _, a := range s.Accounts[:accounts] {
		wantNonces(t, s.Node, a, each, each)
	}
}

func TestDroppedAndRolledBack(t *testing.T) {
	s := StartSim(t, SimConfig{})
	a, b := s.Accounts[0], s.Accounts[1]
	dropped, above, other := send(t, s.Node, a, Payment{}), send(t, s.Node, a, Payment{Nonce: 1}), send(t, s.Node, b, Payment{})
	s.Drop(dropped.Hash())
	wantWhere(t, s.Node, dropped, Nowhere)
	wantWhere(t, s.Node, above, InPool)
	s.Commit()
	wantNonces(t, s.Node, a, 0, 0)
	wantWhere(t, s.Node, other, Mined)
	s.Rollback()
	wantWhere(t, s.Node, above, Nowhere)
	if err := s.Send(dropped); err != nil {
		t.Errorf("what was dropped is refused: %v", err)
	}
}

func TestFinalityMovesWhenTheTestSaysSo(t *testing.T) {
	s := StartSim(t, SimConfig{})
	s.CommitN(40)
	if number, _ := s.Finalized(); number != 0 {
		t.Errorf("block %d is finalized, and nobody said so", number)
	}
	for _, number := range []uint64{17, 3} { // also back
		s.Finalize(number)
		if got, hash := s.Finalized(); got != number || hash != s.BlockHash(number) {
			t.Errorf("finalized is %d %v, want %d", got, hash, number)
		}
	}
	lagging := StartSim(t, SimConfig{FinalLag: 4})
	lagging.CommitN(9)
	head, _ := lagging.Head()
	if number, _ := lagging.Finalized(); number != head-4 {
		t.Errorf("finalized is %d, want %d", number, head-4)
	}
}

func TestAnAuthorizationMovesANonceWithoutATransaction(t *testing.T) {
	s := StartSim(t, SimConfig{})
	payer, owner := s.Accounts[0], s.Accounts[1]
	tx := s.SignDelegations(payer, Payment{}, s.Authorize(owner, common.HexToAddress("0xdead"), 0))
	if err := s.Send(tx); err != nil {
		t.Fatal(err)
	}
	s.Commit()
	wantNonces(t, s.Node, owner, 1, 1)
	var code string
	if err := s.Call(&code, "eth_getCode", owner.Address, "latest"); err != nil || !strings.HasPrefix(code, "0xef0100") {
		t.Errorf("the account's code is %q, %v; want a delegation", code, err)
	}
	// Such an account may have one transaction in the pool and no gap.
	if err := s.Send(s.Sign(owner, Payment{Nonce: 2})); err == nil || !strings.Contains(err.Error(), "gapped-nonce tx from delegated accounts") {
		t.Errorf("a gapped transaction is refused with %v", err)
	}
	send(t, s.Node, owner, Payment{Nonce: 1})
	if err := s.Send(s.Sign(owner, Payment{Nonce: 2})); err == nil {
		t.Error("a second transaction of a delegated account was taken")
	}
}

func TestLongABlobIsMined(t *testing.T) {
	s := StartSim(t, SimConfig{})
	a := s.Accounts[0]
	tx := s.SignBlob(a, Payment{})
	if err := s.Send(tx); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(s.Sign(a, Payment{Nonce: 1})); err == nil || !strings.Contains(err.Error(), "address already reserved") {
		t.Errorf("a payment beside a blob is refused with %v", err)
	}
	s.Commit()
	wantWhere(t, s.Node, tx, Mined)
}
