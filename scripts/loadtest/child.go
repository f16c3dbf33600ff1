//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	readyTimeout = 30 * time.Second
	readyPoll    = 20 * time.Millisecond
	stopTimeout  = 30 * time.Second // longer than the gateway's drain timeout
	logTail      = 2000             // bytes of a child's output in an error
)

// child is a server under measurement.
type child struct {
	cmd     *exec.Cmd
	logPath string
	exited  chan struct{} // closed once it was waited for
}

// startChild starts a program with its output in logPath and waits until ready
// says yes. The caller must stop it.
func startChild(ctx context.Context, logPath string, args []string, ready func(context.Context) bool) (*child, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own, so that ^C reaches it through us, in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, logPath: logPath, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		cmd.Wait() // how it ended is in its log
	}()
	if err := c.waitReady(ctx, ready); err != nil {
		c.stop()
		return nil, fmt.Errorf("%s: %w\n%s", args[0], err, c.output())
	}
	return c, nil
}

func (c *child) waitReady(ctx context.Context, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !ready(ctx) {
		select {
		case <-c.exited:
			return fmt.Errorf("ended before it was ready: %v", c.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// stop ends the process, asking first, and waits.
func (c *child) stop() {
	c.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		c.cmd.Process.Kill()
		<-c.exited
	}
}

// output is the end of what the process has said.
func (c *child) output() []byte {
	out, err := os.ReadFile(c.logPath)
	if err != nil {
		return []byte(err.Error())
	}
	return out[max(0, len(out)-logTail):]
}

// listening reports whether addr takes connections.
func listening(addr string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
}

// answersOK reports whether a GET of url is answered by 200.
func answersOK(url string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
}

// freeAddr is a loopback address nobody listens on at the moment.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}
