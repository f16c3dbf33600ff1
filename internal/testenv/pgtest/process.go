//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// guardScript remembers the last process id it was told ("" for none) until its
// standard input ends; then it ends that process and deletes the directory $1.
// A postmaster told to quit kills its children, stopped ones after five seconds.
const guardScript = `
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
	kill -CONT "$pid"; kill -QUIT "$pid"
	n=0
	while kill -0 "$pid" && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
	kill -KILL "$pid"
fi 2>/dev/null
rm -rf "$1"
`

// gateScript becomes the command it is given once it has read a line.
const gateScript = `read -r _ && exec "$@" </dev/null`

// guard is the shell that outlives this process; see the package comment.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func startGuard(dir string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "guard", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

// watch names the process to end; 0 none.
func (g *guard) watch(pid int) error {
	line := "\n"
	if pid != 0 {
		line = strconv.Itoa(pid) + "\n"
	}
	_, err := io.WriteString(g.pipe, line)
	return err
}

// release lets the guard end what it watches, delete the directory and exit.
func (g *guard) release() error {
	return errors.Join(g.pipe.Close(), g.cmd.Wait())
}

// launcher starts the programs of one server, one at a time.
type launcher struct {
	bin   string              // directory of the binaries
	dir   string              // working directory, and where the log is
	cred  *syscall.Credential // nil: as ourselves
	guard *guard
}

// process is a started program. exited is closed once it was waited for; err may
// be read then.
type process struct {
	pid    int
	exited chan struct{}
	err    error
}

// start runs a binary under the guard, its output going to the log.
func (l *launcher) start(name string, args ...string) (*process, error) {
	log, err := os.OpenFile(l.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", gateScript, name, filepath.Join(l.bin, name)}, args...)...)
	cmd.Dir = l.dir
	cmd.Env = []string{"PATH=" + l.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: l.cred}
	gate, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, exited: make(chan struct{})}
	err = l.guard.watch(p.pid)
	if err == nil {
		_, err = io.WriteString(gate, "go\n")
	}
	err = errors.Join(err, gate.Close())
	go func() {
		defer close(p.exited)
		p.err = errors.Join(cmd.Wait(), l.guard.watch(0))
	}()
	return p, err
}

// run is start, and then waiting for the end.
func (l *launcher) run(name string, args ...string) error {
	p, err := l.start(name, args...)
	if p != nil {
		<-p.exited
		err = errors.Join(err, p.err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, l.logTail())
	}
	return nil
}

func (l *launcher) logPath() string { return filepath.Join(l.dir, "log") }

// logTail is the end of the log, for errors.
func (l *launcher) logTail() string {
	log, err := os.ReadFile(l.logPath())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-2000):]))
}

// signal sends sig to the process, and to its children where all is set.
func (p *process) signal(sig syscall.Signal, all bool) error {
	if err := syscall.Kill(p.pid, sig); err != nil || !all {
		return err
	}
	pids, err := children(p.pid)
	for _, pid := range pids {
		// One that has ended meanwhile needs no signal.
		if kerr := syscall.Kill(pid, sig); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	return err
}

// children lists the direct children of a process. Postgres makes no
// grandchildren.
func children(parent int) ([]int, error) {
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
