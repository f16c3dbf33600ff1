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
	poll         = 20 * time.Millisecond
	tryTimeout   = 5 * time.Second
	StartTimeout = time.Minute // until a server is ready
	tailBytes    = 2000        // of a server's output in an error
)

// ErrTaken says that another server answers where one was to be started.
var ErrTaken = errors.New("the address is taken")

// Server is a server that can be started again once it was stopped. Its methods are called from one goroutine at a time.
type Server struct {
	Name    string // for errors
	Command Command
	URLs    []string // at which it answers, and nothing else may before
	Ready   []string // of these, those that answer once it is ready

	cmd    *exec.Cmd     // nil: it was not started, or was stopped
	log    string        // path of its output
	exited chan struct{} // closed once it was waited for
	err    error         // how it ended; to be read once exited is closed
}

// Start starts the server and waits until it is ready. It is to be stopped also when this fails.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	if err := s.launch(); err != nil {
		return fmt.Errorf("%s: start %s: %w", s.Name, s.Command.words[0], err)
	}
	return s.failed(s.await(ctx))
}

// await waits until the server is ready.
func (s *Server) await(ctx context.Context) error {
	var last error
	err := Until(ctx, func() (bool, error) {
		var err error
		for _, url := range s.Ready {
			err = cmp.Or(err, Answers(ctx, url))
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-s.exited: // something else may answer in its place
			return true, errors.Join(fmt.Errorf("ended before it was ready: %s", s.cmd.ProcessState), err)
		default:
			return err == nil, nil
		}
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("is not ready: %w: %v", err, last)
	}
	return err
}

func (s *Server) launch() error {
	log, err := os.CreateTemp("", "loadtest*.log")
	if err != nil {
		return err
	}
	defer log.Close() // the server has its own by then
	cmd := exec.Command(s.Command.words[0], s.Command.words[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, ownGroup()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(log.Name()))
	}
	s.cmd, s.log, s.exited = cmd, log.Name(), make(chan struct{})
	go func() {
		defer close(s.exited)
		s.err = cmd.Wait()
	}()
	return nil
}

// Stop asks the server to end (SIGTERM; CTRL_BREAK on Windows), kills it and its group when it has not after grace, and waits. It fails
// where it had to kill, and for a status other than 0.
func (s *Server) Stop(grace time.Duration) error {
	if s.cmd == nil {
		return nil
	}
	defer func() {
		os.Remove(s.log) // it is a temporary file
		s.cmd = nil
	}()
	if askToEnd(s.cmd.Process) != nil { // it has ended, or cannot be asked
		grace = min(grace, tryTimeout)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-s.exited:
		return s.failed(s.err)
	case <-timer.C:
	}
	killGroup(s.cmd.Process)
	<-s.exited
	return s.failed(fmt.Errorf("had not ended %v after it was asked to, and was killed", grace))
}

// Pid is the process id of a server that runs.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// failed adds to an error whose it is, and the end of what the server has said.
func (s *Server) failed(why error) error {
	if why == nil {
		return nil
	}
	text, err := os.ReadFile(s.log)
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Errorf("%s: %s (process %d): %w\n%s", s.Name, s.Command.words[0], s.Pid(), why, text[max(0, len(text)-tailBytes):])
}

// Vacant returns an error that is ErrTaken when something listens at one of the server's URLs; what cannot be asked is vacant.
func (s *Server) Vacant(ctx context.Context) error {
	for _, text := range s.URLs {
		u, err := url.Parse(text)
		if err != nil {
			return fmt.Errorf("look whether an address is free: %w", err)
		}
		addr := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"wss": "443", "https": "443"}[u.Scheme], "80"))
		if conn, err := (&net.Dialer{Timeout: tryTimeout}).DialContext(ctx, "tcp", addr); err == nil {
			conn.Close()
			return fmt.Errorf("%w: something listens on %s already; end it first (the gateway of make run?), or choose another", ErrTaken, addr)
		}
	}
	return nil
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

// Answers reports why a URL does not answer as that of a server that is ready: ws and wss by a WebSocket handshake, others by a status 200.
func Answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if strings.HasPrefix(url, "ws") {
		ws, _, err := new(websocket.Dialer).DialContext(ctx, url, nil)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", url, err)
		}
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(tryTimeout)) // a courtesy
		return ws.Close()
	}
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

var (
	word   = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	quoted = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
)

// Command is a command line and its words, of which there is one at least.
type Command struct {
	line  string
	words []string
}

// String is the line as it was written.
func (c Command) String() string { return c.line }

// UnmarshalText cuts a line into words as no shell would on every system: words are separated by spaces; what stands between two ' or two "
// is taken as it is; nothing else has a meaning, so that a Windows path keeps its backslashes.
func (c *Command) UnmarshalText(text []byte) error {
	c.line = string(text)
	c.words = word.FindAllString(c.line, -1)
	switch {
	case strings.ContainsAny(word.ReplaceAllString(c.line, ""), `'"`):
		return errors.New("a quote is not closed in: " + c.line)
	case len(c.words) == 0:
		return errors.New("no command")
	}
	for i := range c.words {
		c.words[i] = quoted.ReplaceAllString(c.words[i], "$1$2")
	}
	return nil
}
