//go:build unix

package chaintest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"
)

func TestAnvilMinesByItselfOrWhenTold(t *testing.T) {
	a := StartAnvil(t)
	payer := a.Accounts[63]
	if got := a.Balance(payer.Address); got.Cmp(Ether(1000)) != 0 || a.ChainID().Uint64() != 31337 {
		t.Errorf("%v own %v on chain %v", payer.Address, got, a.ChainID())
	}
	tx := send(t, a.Node, payer, Payment{})
	poll(t, "it is mined by itself", func() bool { return a.Where(tx.Hash()) == Mined })
	if r := a.Receipt(tx.Hash()); r == nil || r.Status != types.ReceiptStatusSuccessful {
		t.Errorf("the receipt is %+v", r)
	}

	before, _ := a.Head()
	a.Mine(3)
	if number, _ := a.Head(); number != before+3 {
		t.Errorf("block %d after %d and 3", number, before)
	}
}

func TestAReorgOfAnvilLosesTransactions(t *testing.T) {
	a := StartAnvil(t, "--no-mining", "--chain-id", "5")
	if a.ChainID().Uint64() != 5 {
		t.Errorf("chain %v, want that of the arguments", a.ChainID())
	}
	payer := a.Accounts[0]
	a.Mine(2)
	tx := send(t, a.Node, payer, Payment{})
	a.Mine(1)
	number, left := a.Head()
	wantNonces(t, a.Node, payer, 1, 1)
	a.Reorg(2)
	if got, head := a.Head(); got != number || head == left || a.BlockHash(number) == left {
		t.Errorf("the head is block %d %v, want another of number %d", got, head, number)
	}
	wantNonces(t, a.Node, payer, 0, 0)
	wantWhere(t, a.Node, tx, Nowhere)
	a.Mine(1)
	wantNonces(t, a.Node, payer, 0, 0)
}

func TestTwoEpochsBelowTheHeadOfAnvilAreFinalized(t *testing.T) {
	a := StartAnvil(t, "--slots-in-an-epoch", "2")
	for _, c := range []struct{ mine, final uint64 }{{3, 0}, {2, 1}, {4, 5}} {
		a.Mine(int(c.mine))
		if number, hash := a.Finalized(); number != c.final || hash != a.BlockHash(c.final) {
			head, _ := a.Head()
			t.Errorf("with block %d the finalized one is %d, want %d", head, number, c.final)
		}
	}
}

func TestAProxyBeforeAnvil(t *testing.T) {
	a := StartAnvil(t, "--no-mining")
	p := StartProxy(t, a)
	client := dial(t, p.WS())
	heads := make(chan *types.Header, 8)
	sub, err := client.SubscribeNewHead(t.Context(), heads)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	payer := a.Accounts[0]
	if err := client.SendTransaction(t.Context(), a.Sign(payer, Payment{})); err != nil {
		t.Fatal(err)
	}
	a.Mine(1)
	if _, want := a.Head(); (<-heads).Hash() != want {
		t.Error("another head was announced")
	}
	if number := p.Lag(1); number != 0 {
		t.Errorf("it lags at block %d, want 0", number)
	}
	for _, url := range []string{p.URL(), p.WS()} {
		if count, err := dial(t, url).NonceAt(t.Context(), payer.Address, nil); err != nil || count != 0 {
			t.Errorf("%s: count %d, %v; want 0", url, count, err)
		}
	}
	p.CatchUp()
	if count, err := client.NonceAt(t.Context(), payer.Address, nil); err != nil || count != 1 {
		t.Errorf("count %d, %v; want 1", count, err)
	}
}

// fatal is a T without a test. It remembers how it failed.
type fatal struct {
	ctx  context.Context
	said string
	ends []func()
}

func (f *fatal) Helper()                  {}
func (f *fatal) Logf(string, ...any)      {}
func (f *fatal) Cleanup(end func())       { f.ends = append(f.ends, end) }
func (f *fatal) Context() context.Context { return f.ctx }
func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

// failing runs what must fail and returns what it said.
func failing(t *testing.T, run func(T)) string {
	t.Helper()
	f := &fatal{ctx: t.Context()}
	defer func() {
		for _, end := range f.ends {
			end()
		}
	}()
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		run(f)
	}()
	return f.said
}

func TestAnvilSaysWhyItDidNotStart(t *testing.T) {
	said := failing(t, func(t T) { StartAnvil(t, "--no-such-argument") })
	if !strings.Contains(said, "anvil ended") || !strings.Contains(said, "--no-such-argument") {
		t.Errorf("it said %q", said)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if said := failing(t, func(t T) { StartAnvil(t) }); !strings.Contains(said, "install Node.js and npm") {
		t.Errorf("without npm it said %q", said)
	}
}

// victimEnv makes the test binary start an anvil, say which, and wait.
const victimEnv = "CHAINTEST_VICTIM"

func victim() {
	a := StartAnvil(&fatal{ctx: context.Background()})
	fmt.Println(a.process.PID())
	select {}
}

func TestAnvilDoesNotOutliveAKilledProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscan(bufio.NewReader(out), &pid)
	if err == nil {
		err = syscall.Kill(pid, 0)
	}
	err = errors.Join(err, cmd.Process.Kill())
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "anvil has ended", func() bool { return gone(pid) })
}

// gone reports whether a process has ended. One that is a zombie has: in a container its
// parent may be a process that never asks.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err != nil || strings.HasPrefix(string(out), "Z")
}
