package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/rpc"
)

// go-ethereum's client, as others that are configured by a URL alone, makes HTTP Basic
// of a user in the URL. The user's name may be any.
func TestAKeyInTheURLIsEnoughForAClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, rights := "--store=sqlite:"+filepath.Join(dir, "nonces.db"), filepath.Join(dir, "rights.yaml")
	if err := os.WriteFile(rights, []byte(`principals: {payouts: [{rights: [allocate], signers: ["*"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := exec.Command(program, "key", "create", "payouts", store).Output()
	key := strings.TrimSpace(string(made))
	if err != nil || key == "" {
		t.Fatalf("key create: %s, %v", made, err)
	}
	g := launch(t, "127.0.0.1:0", []string{store, "--rights=" + rights})
	dial := func(user string) (*rpc.Client, error) {
		return rpc.DialContext(t.Context(), "ws://"+user+"@"+g.addr+"/ws")
	}
	client, err := dial("any:" + key)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if got := call[hold](t, client, "nonce_allocate", signer); got.Nonce != 0 {
		t.Errorf("got %+v", got)
	}
	for _, user := range []string{"payouts:" + key[:len(key)-1] + "x", key, ":"} {
		if client, err := dial(user); err == nil {
			client.Close()
			t.Errorf("%q was let in", user)
		} else if !strings.Contains(err.Error(), "401") {
			t.Errorf("%q: %v", user, err)
		}
	}
}
