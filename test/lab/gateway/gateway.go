//go:build unix

// Package gateway builds the gateway of this repository, also one that is wrong on purpose, and runs it for tests and tools.
//
// Promises: a gateway that Start returns serves, at addresses that were free; it does not outlive this process, nor its room (see
// package guarded), and gets no environment variables except those of Config.Env.
//
// Not promised: that its store is reachable after the start; anything on a system that is
// not Unix. The package starts no goroutines but those of the room.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
)

// Config says how a gateway is started.
type Config struct {
	Program string // path, made by Build
	// Log is the file of the room that has its output.
	Log string
	Env []string
	// Args are its flags. Without --listen and --admin-listen it takes free ports.
	Args []string
}

// Gateway is a process of the gateway.
type Gateway struct {
	*guarded.Process
	URL   string // of its WebSocket
	Admin string // URL of its private side
}

const (
	poll       = 5 * time.Millisecond // how often a log is looked at
	endTimeout = 30 * time.Second     // longer than the gateway's own drain timeout
)

var greeting = regexp.MustCompile(`Noncegate listens on (wss?://\S+)\s+\(metrics: (https?://\S+)/metrics\)`)

// Start starts a gateway in a room and returns once it says where it listens. When it ends
// instead, that is guarded.ErrEnded and the gateway is returned nevertheless.
func Start(ctx context.Context, room *guarded.Room, c Config) (*Gateway, error) {
	g, err := Begin(room, c)
	if err != nil {
		return nil, err
	}
	if err := g.Serves(ctx); err != nil {
		return g, errors.Join(err, g.Kill())
	}
	return g, nil
}

// Begin starts a gateway in a room and does not wait for it.
func Begin(room *guarded.Room, c Config) (*Gateway, error) {
	args := append([]string{c.Program, "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, c.Args...)
	env := append([]string{}, c.Env...) // nil would be ours
	p, err := room.Start(c.Log, env, args...)
	if err != nil {
		return nil, err
	}
	return &Gateway{Process: p}, nil
}

// Serves waits until the gateway says where it listens, and so sets URL and Admin. When it ends instead, that is guarded.ErrEnded.
func (g *Gateway) Serves(ctx context.Context) error {
	err := g.Await(ctx, poll, func(context.Context) error {
		found := greeting.FindStringSubmatch(g.Log())
		if found == nil {
			return errors.New("it does not say where it listens")
		}
		g.URL, g.Admin = found[1], found[2]
		return nil
	})
	if err != nil {
		return fmt.Errorf("start a gateway: %w", err)
	}
	return nil
}

// Kill ends the gateway as a crash would. It may have ended already.
func (g *Gateway) Kill() error { return g.End(syscall.SIGKILL, endTimeout) }

// Stop lets the gateway drain and waits for its end. That it did not end in order is an error.
func (g *Gateway) Stop() error {
	if err := g.End(syscall.SIGTERM, endTimeout); err != nil {
		return err
	}
	if err := g.Err(); err != nil {
		return fmt.Errorf("the gateway ended with %w\n%s", err, g.LogTail(alarmBytes))
	}
	return nil
}

// alarms are in no log of a gateway that is right.
var alarms = []string{"DATA RACE", "panic", "fatal error"}

// alarmBytes is how much of a log is shown from an alarm on.
const alarmBytes = 2000

// Alarms returns the places of a log that tell of a race or a panic, or where a line is alarming to the caller, with what follows.
func Alarms(log string, alarming func(line string) bool) (found []string) {
	for len(log) > 0 {
		line, rest, _ := strings.Cut(log, "\n")
		if slices.ContainsFunc(alarms, func(a string) bool { return strings.Contains(line, a) }) || alarming(line) {
			end := min(len(log), alarmBytes)
			found = append(found, log[:end])
			rest = log[end:]
		}
		log = rest
	}
	return found
}

// OnSQLite starts a gateway on an empty file for a test, with further flags of serve. It ends with the test.
func OnSQLite(t testing.TB, program string, flags ...string) *Gateway {
	t.Helper()
	room, err := guarded.Open("gateway", nil)
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, room.Close()) })
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	g, err := Start(t.Context(), room, Config{Program: program, Log: "gateway.log", Args: append(flags, store)})
	expect.Must(t, err)
	return g
}
