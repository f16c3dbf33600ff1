//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/sqlite"
)

// The roles that this test program plays when it is started with roleVariable
// set: it is then another process that uses the store of its last argument.
const (
	roleVariable = "NONCEGATE_SQLITE_TEST_ROLE"
	roleWriter   = "writer"    // hands out nonces and prints each one acknowledged
	roleFullDisk = "full disk" // does so until files can no longer grow
)

// play plays a role and returns the exit status.
func play(role, path string) int {
	fatal := 0
	s, err := sqlite.Open(context.Background(), path, 0, sqlite.Config{Fatal: func(error) { fatal++ }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if role == roleFullDisk {
		if err := stopGrowth(path + "-wal"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	err = write(s)
	fmt.Println("outcome", nonce.OutcomeOf(err), "fatal", fatal)
	_, err = s.Acquire(context.Background(), lease.Holder{Node: "n"}, []int{0})
	fmt.Println("then", nonce.OutcomeOf(err), "fatal", fatal, "ping", s.Ping(context.Background()) != nil)
	return 0
}

// write hands out nonces one by one until an error.
func write(s *sqlite.Store) error {
	w, err := newWriter(context.Background(), s)
	for err == nil {
		var n int64
		if n, err = w.next(context.Background()); err == nil {
			fmt.Println(n)
		}
	}
	return err
}

// stopGrowth lets no file of this process grow much beyond the size of path.
func stopGrowth(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := uint64(info.Size()) + 100_000
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit})
}

// start starts this program in a role; the scanner reads what it prints.
func start(t *testing.T, role, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, path)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // when the test failed before it ended the process
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	acknowledged := int64(-1)
	for range 3 {
		cmd, out := start(t, roleWriter, path)
		for lines := 0; out.Scan(); lines++ {
			if _, err := fmt.Sscan(out.Text(), &acknowledged); err != nil {
				t.Fatalf("got %q: %v", out.Text(), err)
			}
			if lines == 20 {
				_, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{})
				wantSentence(t, err, path, "in use by another process")
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer ended by itself")
		}
	}
	if acknowledged < 60 {
		t.Fatalf("only %d nonces were acknowledged", acknowledged+1)
	}
	wantRows(t, path, acknowledged+1)
}

// wantRows opens the store and wants at least the first n nonces, without a hole.
func wantRows(t *testing.T, path string, n int64) {
	t.Helper()
	s := open(t, path)
	loaded, err := s.Load(t.Context(), []nonce.SignerNeed{{Signer: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	next := loaded.Signers[0].Signer.Next
	page, err := s.List(t.Context(), nonce.ListQuery{Signer: "s", Limit: int(next) + 1})
	if err != nil {
		t.Fatal(err)
	}
	if next < n || int64(len(page.Rows)) != next {
		t.Errorf("next %d, %d rows, want at least %d", next, len(page.Rows), n)
	}
}

func TestAnIOErrorAtCommitIsUnknownAndCallsForTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	cmd, out := start(t, roleFullDisk, path)
	var acknowledged int64
	var said []string
	for out.Scan() {
		if _, err := fmt.Sscan(out.Text(), &acknowledged); err != nil {
			said = append(said, out.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want := "outcome unknown fatal 1; then not sent fatal 1 ping true"
	if got := strings.Join(said, "; "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if acknowledged == 0 {
		t.Error("nothing was acknowledged before the error")
	}
	wantRows(t, path, acknowledged+1)
}

func TestAReadOnlyDirectoryOrFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "store.db")
	if err := open(t, file).Close(); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{file: 0o444, file + ".lock": 0o666, dir: 0o555, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o700); err != nil { // so that it can be removed
			t.Error(err)
		}
	})
	asNobody(t, func() {
		for path, want := range map[string]string{
			file:                         "cannot be opened for writing: permission denied",
			filepath.Join(dir, "new.db"): "cannot be taken: permission denied",
		} {
			_, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{})
			wantSentence(t, err, path, want)
		}
	})
}
