// Package process runs a server as a child process, on Windows too: starts it, waits until it is ready, asks it to end, and kills it when
// it does not.
//
// Stop returns only once the child has ended and was waited for; a child which does not end by itself is killed with all processes of its
// group. When this process is killed itself the child goes on. The command must be the server itself, or replace itself by it (exec): a
// shell that waits for the server would be asked to end in its place.
//
// One goroutine a process waits for it; it ends with the process.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

const (
	poll       = 20 * time.Millisecond
	tryTimeout = 5 * time.Second
	tailBytes  = 2000 // of a child's output in an error
)

// ErrTaken says that another server answers where one was to be started.
var ErrTaken = errors.New("the address is taken")

// Process is a child that was started.
type Process struct {
	cmd     *exec.Cmd
	logPath string
	exited  chan struct{} // closed once it was waited for
	err     error         // how it ended; to be read once exited is closed
}

// Start starts a program, its output appended to the file logPath. The caller must call Stop.
func Start(args []string, logPath string) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	defer log.Close() // the child has its own by then
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	p := &Process{cmd: cmd, logPath: logPath, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// WaitReady returns once ready returns nil and the child lives. It fails when the child ends first, and when ctx does: with what ready said
// last, and the end of the child's output.
func (p *Process) WaitReady(ctx context.Context, ready func(context.Context) error) error {
	err := Until(ctx, func() (bool, error) {
		err := ready(ctx)
		select {
		case <-p.exited:
			return true, errors.Join(fmt.Errorf("ended before it was ready: %s", p.cmd.ProcessState), err)
		default:
			return err == nil, nil
		}
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("is not ready: %w: %v", err, ready(context.WithoutCancel(ctx)))
	}
	return p.failed(err)
}

// Stop asks the child to end (SIGTERM; CTRL_BREAK on Windows), kills it and its group when it has not after grace, and waits. The error
// says that it had to be killed, or that it ended with a status other than 0. It may be called again, with the same answer, and by several
// goroutines.
func (p *Process) Stop(grace time.Duration) error {
	if askToEnd(p.cmd.Process) != nil { // it has ended, or cannot be asked
		grace = min(grace, tryTimeout)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.failed(p.err)
	case <-timer.C:
	}
	killGroup(p.cmd.Process)
	<-p.exited
	return p.failed(fmt.Errorf("had not ended %v after it was asked to, and was killed", grace))
}

// failed adds to an error whose it is, and the end of what the child, and those that wrote to the same file before it, have said.
func (p *Process) failed(why error) error {
	if why == nil {
		return nil
	}
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Errorf("%s (process %d): %w\n%s", p.cmd.Args[0], p.Pid(), why, text[max(0, len(text)-tailBytes):])
}

// Sleep returns after d, or with the cause when ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Until looks every now and then until look reports that it is so, fails, or ctx ends; of the last it returns the cause.
func Until(ctx context.Context, look func() (so bool, err error)) error {
	for {
		if so, err := look(); so || err != nil {
			return err
		}
		if err := Sleep(ctx, poll); err != nil {
			return err
		}
	}
}

// Vacant returns an error that is ErrTaken when something takes TCP connections at the host and port of one of the URLs, and would be taken
// for the server that is to be started there. An address that cannot be asked is vacant.
func Vacant(ctx context.Context, urls ...string) error {
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return fmt.Errorf("look whether an address is free: %w", err)
		}
		addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"wss": "443", "https": "443"}[u.Scheme], "80"))
		if Listens(addr)(ctx) == nil {
			return fmt.Errorf("%w: something listens on %s already; end it first (the gateway of make run?), or choose another", ErrTaken, addr)
		}
	}
	return nil
}

// Handshakes is ready once a WebSocket connection to url can be opened.
func Handshakes(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		dialer := websocket.Dialer{HandshakeTimeout: tryTimeout}
		ws, _, err := dialer.DialContext(ctx, url, nil)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", url, err)
		}
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(tryTimeout)) // a courtesy
		return ws.Close()
	}
}

// AnswersOK is ready once a GET of url is answered by 200.
func AnswersOK(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Close = true // no connection is kept for a server that goes away
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	}
}

// Listens is ready once addr takes TCP connections.
func Listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: tryTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

var (
	word   = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	quoted = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
)

// Split cuts a command line into its words, of which there is one at least, as no shell would on every system: words are separated by
// spaces; what stands between two ' or two " is taken as it is, spaces too; nothing else has a meaning, so that a Windows path keeps its
// backslashes. A quote that is not closed is an error.
func Split(line string) ([]string, error) {
	words := word.FindAllString(line, -1)
	switch {
	case strings.ContainsAny(word.ReplaceAllString(line, ""), `'"`):
		return nil, errors.New("a quote is not closed in: " + line)
	case len(words) == 0:
		return nil, errors.New("no command")
	}
	for i := range words {
		words[i] = quoted.ReplaceAllString(words[i], "$1$2")
	}
	return words, nil
}
