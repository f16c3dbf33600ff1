//go:build unix

package guarded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Account is whom a program should run as that should not be root: nil for ourselves, and when we are root the first of names that exists.
func Account(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("no account to run under: none of %s exists", strings.Join(names, ", "))
}

// makeDir makes a directory that the account owns and can reach, with a path short enough for a Unix socket (about 100 bytes on every
// system).
func makeDir(prefix string, cred *syscall.Credential) (string, error) {
	base := os.TempDir()
	if len(base) > 60 || cred != nil && !reachable(base) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, prefix)
	if err != nil || cred == nil {
		return dir, err
	}
	if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// reachable reports whether everybody may pass through dir and all above it.
func reachable(dir string) bool {
	for {
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// signalAll sends sig to the program and to what it has started itself.
func (p *Process) signalAll(sig syscall.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	pids, err := Children(p.PID())
	for _, pid := range pids {
		// One that has ended meanwhile needs no signal.
		if kerr := syscall.Kill(pid, sig); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	return err
}

// Children lists the processes that a process has started itself.
func Children(parent int) ([]int, error) {
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return childrenByProc(parent)
	}
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		if _, err := fmt.Sscan(line, &pid, &ppid); err == nil && ppid == parent {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func childrenByProc(parent int) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	var pids []int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid …; the name may hold anything, brackets too.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids, err
}
