package interop

import (
	"bufio"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"noncegate/client"
	"noncegate/test/lab/tlstest"
)

// installed is a folder below which deploy/install.sh has put a gateway.
type installed struct {
	t    *testing.T
	root string
}

// at is where a file of the host is.
func (h *installed) at(path string) string { return filepath.Join(h.root, path) }

func (h *installed) install() {
	h.t.Helper()
	if out, err := exec.Command("../../deploy/install.sh", "--root", h.root, program).CombinedOutput(); err != nil {
		h.t.Fatalf("install.sh: %v\n%s", err, out)
	}
}

func (h *installed) write(path, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.at(path), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *installed) read(path string) string {
	h.t.Helper()
	return string(get(os.ReadFile(h.at(path)))(h.t))
}

// unitLine is what the unit says of a key.
func (h *installed) unitLine(key string) string {
	h.t.Helper()
	found := regexp.MustCompile(`(?m)^` + key + `=-?(.*)$`).FindStringSubmatch(h.read("/etc/systemd/system/noncegate.service"))
	if found == nil {
		h.t.Fatalf("the unit does not say %s", key)
	}
	return strings.TrimSpace(found[1])
}

// command is the unit's own: its program, arguments, environment file and folder, all below the root.
func (h *installed) command(args ...string) *exec.Cmd {
	h.t.Helper()
	below := strings.NewReplacer("/etc/noncegate", h.at("/etc/noncegate"), "/var/lib/noncegate", h.at("/var/lib/noncegate"))
	program, usual, _ := strings.Cut(h.unitLine("ExecStart"), " ")
	if len(args) == 0 {
		args = strings.Fields(usual)
	}
	for i := range args {
		args[i] = below.Replace(args[i])
	}
	cmd := exec.Command(h.at(program), args...)
	cmd.Dir, cmd.Env = h.at(h.unitLine("WorkingDirectory")), []string{raceEnv}
	for line := range strings.Lines(h.read(h.unitLine("EnvironmentFile"))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			cmd.Env = append(cmd.Env, below.Replace(line))
		}
	}
	return cmd
}

func TestAGatewayInstalledOnAHostIsUsedOverTLS(t *testing.T) {
	t.Parallel()
	h := &installed{t: t, root: t.TempDir()}
	h.install()
	ca := tlstest.New(t, "self-signed authority")
	cert, key := ca.Issue(tlstest.Leaf{})
	h.write("/etc/noncegate/tls/cert.pem", string(cert))
	h.write("/etc/noncegate/tls/key.pem", string(key))
	h.write("/etc/noncegate/rights.yaml", "principals:\n  payouts:\n    - {rights: [allocate, mark, read], signers: [\"*\"]}\n")
	settings := strings.NewReplacer(
		"# tls-cert: /etc/noncegate", "tls-cert: "+h.at("/etc/noncegate"), "# tls-key: /etc/noncegate", "tls-key: "+h.at("/etc/noncegate"),
		"# rights: /etc/noncegate", "rights: "+h.at("/etc/noncegate"), "sqlite:/var/lib/noncegate", "sqlite:"+h.at("/var/lib/noncegate"),
		"listen: 127.0.0.1:8080", "listen: 0.0.0.0:0", "admin-listen: 127.0.0.1:8081", "admin-listen: 127.0.0.1:0",
	).Replace(h.read("/etc/noncegate/noncegate.yaml"))
	h.write("/etc/noncegate/noncegate.yaml", settings)
	h.write("/etc/noncegate/noncegate.env", "NONCEGATE_ADMIN_KEY=the-key-of-this-test\n")

	// An upgrade leaves the settings.
	h.install()
	if got := h.read("/etc/noncegate/noncegate.yaml"); got != settings || h.read("/etc/noncegate/noncegate.env") == "" {
		t.Errorf("the settings after an upgrade:\n%s", got)
	}

	// By hand, from wherever the operator is, and without the unit's environment.
	byHand := h.command("key", "create", "payouts", "--config", "/etc/noncegate/noncegate.yaml")
	byHand.Dir, byHand.Env = t.TempDir(), nil
	made, err := byHand.Output()
	token := regexp.MustCompile(`nck_\S+`).FindString(string(made))
	if err != nil || token == "" {
		t.Fatalf("key create: %s, %v", made, err)
	}

	cmd := h.command()
	stdout := get(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("after SIGTERM the gateway ended with: %v", err)
		}
	})
	url := ""
	for lines := bufio.NewScanner(stdout); url == "" && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Noncegate listens on "); ok {
			url = strings.Replace(strings.Fields(rest)[0], "[::]", "localhost", 1)
		}
	}
	if !strings.HasPrefix(url, "wss://localhost:") {
		t.Fatalf("it listens on %q", url)
	}

	c, err := client.Dial(t.Context(), url, client.Config{TLS: ca.Client(), Header: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.Allocate(t.Context(), client.AllocateRequest{Signer: signer}); err != nil || a.Nonce != 0 {
		t.Errorf("the Go client: %+v, %v", a, err)
	}
	c.Close()
}
