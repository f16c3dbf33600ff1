package interop

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"

	"noncegate/test/interop/chaintest"
	"noncegate/test/interop/npm"
)

func keyOf(a chaintest.Account) string { return "0x" + hex.EncodeToString(crypto.FromECDSA(a.Key)) }

// Libraries for wallets as a program uses them, with nothing changed but the URL: three
// transactions one after the other, three at once, a contract, its events, and blocks.
func TestWalletsSendThroughTheGateway(t *testing.T) {
	t.Parallel()
	packages := get(npm.Folder(t.Context()))(t)
	for _, library := range []string{"viem", "ethers"} {
		for _, scheme := range []string{"ws", "http"} {
			t.Run(library+" over "+scheme, func(t *testing.T) {
				t.Parallel()
				c := startChained(t)
				c.mine()
				from := c.sim.Accounts[0]
				out := runScript(t, packages, library+".mjs",
					"URL="+c.eth(scheme), "KEY="+keyOf(from), "TO="+c.sim.Accounts[1].Address.Hex(), "CODE="+answerer, fmt.Sprint("CHAIN=", c.sim.ChainID()))
				if want := "next 8\n"; out != want {
					t.Errorf("got %q, want %q", out, want)
				}
				if got := call[status](t, c.dial(), "nonce_status", c.signerOf(from)); got.Next != 8 || got.Held != 0 || got.Released != 0 {
					t.Errorf("the gateway has %+v", got)
				}
			})
		}
	}
}

// beside is a folder with files and the packages that they need.
func beside(t *testing.T, packages string, files fs.FS, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules"))
	for _, name := range names {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, filepath.Base(name)), get(fs.ReadFile(files, name))(t), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// runScript runs a script with node and returns what it printed.
func runScript(t *testing.T, packages, name string, env ...string) string {
	t.Helper()
	dir := beside(t, packages, os.DirFS("testdata/wallets"), name)
	ctx, cancel := context.WithTimeout(t.Context(), 4*scenarioTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", name)
	cmd.Dir, cmd.Env = dir, append(env, "PATH="+os.Getenv("PATH"), "HOME="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, &stderr)
	}
	return string(out)
}

// Foundry's cast, with nothing changed but the URL.
func TestCastSendsThroughTheGateway(t *testing.T) {
	t.Parallel()
	program := castProgram(t)
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			c := startChained(t)
			c.mine()
			from := c.sim.Accounts[0]
			cast := func(args ...string) string {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*scenarioTime)
				defer cancel()
				cmd := exec.CommandContext(ctx, program, args...)
				cmd.Env = []string{"HOME=" + t.TempDir(), "NO_COLOR=1", "ETH_RPC_URL=" + c.eth(scheme)}
				var stderr strings.Builder // also what cast says while it ends, such as of a poll that it breaks off
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("cast %s: %v\n%s%s", args, err, out, &stderr)
				}
				return strings.TrimSpace(string(out))
			}
			type receipt struct{ Status, ContractAddress, TransactionHash string }
			send := func(args ...string) (r receipt) {
				t.Helper()
				// On a chain without other transactions cast offers no tip, and go-ethereum mines none for nothing.
				out := cast(append([]string{"send", "--json", "--private-key", keyOf(from), "--gas-price", "10gwei", "--priority-gas-price", "1gwei"}, args...)...)
				if err := json.Unmarshal([]byte(out), &r); err != nil || r.Status != "0x1" {
					t.Fatalf("cast send %s: %v\n%s", args, err, out)
				}
				return r
			}
			to := c.sim.Accounts[1].Address.Hex()
			for range 3 {
				send(to, "--value", "1")
			}
			contract := send("--create", answerer).ContractAddress
			if out := cast("call", contract); new(big.Int).SetBytes(get(hex.DecodeString(strings.TrimPrefix(out, "0x")))(t)).Int64() != 42 {
				t.Errorf("the contract answers %s", out)
			}
			called := send(contract)
			if out := cast("receipt", called.TransactionHash, "status"); !strings.HasPrefix(out, "1") && out != "true" {
				t.Errorf("cast receipt: %s", out)
			}
			if out := cast("nonce", "--block", "pending", from.Address.Hex()); out != "5" {
				t.Errorf("cast nonce: %s", out)
			}
			if out := cast("chain-id"); out != c.sim.ChainID().String() {
				t.Errorf("cast chain-id: %s", out)
			}
			if got := call[status](t, c.dial(), "nonce_status", c.signerOf(from)); got.Next != 5 || got.Held != 0 || got.Released != 0 {
				t.Errorf("the gateway has %+v", got)
			}
		})
	}
}

func castProgram(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		return filepath.Join(get(npm.Folder(t.Context()))(t), "node_modules", "@foundry-rs", "cast-linux-amd64", "bin", "cast")
	}
	path, err := exec.LookPath("cast")
	if err != nil {
		t.Fatalf("%v: its npm package is used on Linux on x86-64 only; elsewhere install Foundry (https://getfoundry.sh)", err)
	}
	return path
}
