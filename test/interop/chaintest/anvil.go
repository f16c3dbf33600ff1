//go:build unix

package chaintest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/lab/guarded"
	"noncegate/test/lab/npmtest"
)

//go:embed npm/package.json npm/package-lock.json npm/.npmrc
var anvilPackages embed.FS

// anvilListens is what anvil says last when it starts.
var anvilListens = regexp.MustCompile(`Listening on (127\.0\.0\.1:\d+)`)

// Anvil is Foundry's node, a process of its own, for what is not as in go-ethereum: blocks that come by themselves with every
// transaction, and a reorg that loses them. The chain id is 31337 where no argument says otherwise. Two epochs below the head are
// finalized, one is safe, of 32 blocks where --slots-in-an-epoch does not say otherwise; never below block 0.
//
// The program is that of the npm package for Linux on x86-64, in the version of the lock file; on other systems it is the anvil in PATH.
// Its methods may be called from any goroutine.
type Anvil struct {
	*Node
	// Accounts are those that own ether at the start: 64 of NewAccounts with 1000 ether each, besides anvil's own.
	Accounts []Account
	stop     func() error
}

// StartAnvil starts an anvil with these arguments on a free port. It ends with the test,
// and with the process that called this, however that ends.
func StartAnvil(t T, args ...string) *Anvil {
	t.Helper()
	a, err := newAnvil(t, args...)
	if err != nil {
		t.Fatalf("anvil: %v", err)
	}
	for _, account := range a.Accounts {
		a.must("anvil_setBalance", a.Call(new(any), "anvil_setBalance", account.Address, (*hexutil.Big)(Ether(1000))))
	}
	return a
}

func newAnvil(t T, args ...string) (*Anvil, error) {
	t.Helper()
	program, err := AnvilProgram(t.Context())
	if err != nil {
		return nil, err
	}
	room, err := guarded.Open("anvil", nil)
	if err != nil {
		return nil, err
	}
	a := &Anvil{Accounts: NewAccounts(64), stop: room.Close}
	t.Cleanup(a.Stop)
	// It keeps what it must below its home.
	env := []string{"HOME=" + room.Dir(), "TMPDIR=" + room.Dir()}
	process, err := room.Start("log", env, slices.Concat([]string{program, "--host", "127.0.0.1", "--port", "0"}, args)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), pollDeadline)
	defer cancel()
	var found []string
	err = process.Await(ctx, 2*time.Millisecond, func(context.Context) error {
		if found = anvilListens.FindStringSubmatch(process.LogTail(1000)); found == nil {
			return errors.New("it does not say where it listens")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	client, err := rpc.DialContext(t.Context(), "ws://"+found[1])
	if err != nil {
		return nil, err
	}
	t.Cleanup(client.Close)
	a.Node = newNode(t, client, "http://"+found[1], "ws://"+found[1])
	return a, nil
}

// Stop ends the process, and waits. It may be called twice, and is called by itself at the end of the test.
func (a *Anvil) Stop() {
	if err := a.stop(); err != nil && a.Node != nil {
		a.t.Logf("stop anvil: %v", err)
	}
}

// AnvilProgram is the path of the program, which npm installs the first time.
func AnvilProgram(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		path, err := exec.LookPath("anvil")
		if err != nil {
			err = fmt.Errorf("%w: its npm package is used on Linux on x86-64 only; elsewhere install Foundry (https://getfoundry.sh)", err)
		}
		return path, err
	}
	packages, err := fs.Sub(anvilPackages, "npm")
	if err != nil {
		return "", err
	}
	dir, err := npmtest.Folder(ctx, "anvil", packages)
	return filepath.Join(dir, "node_modules", "@foundry-rs", "anvil-linux-amd64", "bin", "anvil"), err
}

// Commit mines one block with what is in the pool.
func (a *Anvil) Commit() {
	a.t.Helper()
	a.must("anvil_mine", a.Call(new(any), "anvil_mine", "0x1"))
}

// Reorg replaces the last depth blocks by as many empty ones. Their transactions are nowhere after it.
func (a *Anvil) Reorg(depth int) {
	a.t.Helper()
	a.must("anvil_reorg", a.Call(new(any), "anvil_reorg", depth, []any{}))
}
