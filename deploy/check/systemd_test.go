package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const unit = "../systemd/noncegate.service"

// maxExposed is the most of systemd's score, 0 to 10, that the unit may have.
const maxExposed = 1.5

func TestTheUnitIsUnderstoodAndHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Fatal("systemd-analyze is not here; on Debian it comes with the package systemd")
	}
	// verify asks whether the program is there.
	text, err := os.ReadFile(unit)
	must(t, err)
	here := filepath.Join(t.TempDir(), "noncegate.service")
	must(t, os.WriteFile(here, []byte(strings.Replace(string(text), "/usr/local/bin/gateway", "/bin/true", 1)), 0o600))
	if out, err := exec.Command("systemd-analyze", "verify", here).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	// Listeners read the longest backlog below /proc/sys, figures the time of the start
	// from /proc/stat; and what is away at the start may come back.
	for _, harmful := range []string{"ProcSubset=pid", "RestartPreventExitStatus="} {
		if strings.Contains(string(text), "\n"+harmful) {
			t.Errorf("the unit says %s", harmful)
		}
	}
	if !strings.Contains(string(text), "\nLimitCORE=0\n") {
		t.Error("a dump of the memory, which has credentials, may be written")
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", here).CombinedOutput()
	found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if found == nil {
		t.Skipf("this systemd-analyze does not judge units that are not loaded: %v\n%s", err, out)
	}
	if score, err := strconv.ParseFloat(string(found[1]), 64); err != nil || score > maxExposed {
		t.Errorf("exposure %s, want at most %v\n%s", found[1], maxExposed, out)
	}
}
