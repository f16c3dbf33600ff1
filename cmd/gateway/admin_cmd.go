package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"noncegate/internal/admin"
)

// adminCmd is what the commands share that ask a gateway's private side.
type adminCmd struct {
	Admin string `name:"admin" default:"http://127.0.0.1:8081" help:"URL of the private side of a gateway (--admin-listen)."`
	Key   string `name:"admin-key" placeholder:"KEY" help:"What it asks for (--admin-key of the gateway). Best given by the environment."`
	Token string `placeholder:"TOKEN" text:"token-of-acts"`
	Trust
	JSON    bool          `name:"json" help:"Print JSON, in one line."`
	Timeout time.Duration `default:"5m" min:"1ms" help:"Longest wait for the answer."`
}

// Validate reports the first argument that cannot be used.
func (c *adminCmd) Validate() error {
	if u, err := url.Parse(c.Admin); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return settingErrorf("admin", "%q must be a URL that starts with http:// or https://", c.Admin)
	}
	return nil
}

// adminDial bounds the wait for a connection: where packets get lost there is no answer.
const adminDial = 10 * time.Second

// ask asks the gateway and decodes its answer into v. A refusal is an *adminRefusal.
func (c *adminCmd) ask(ctx context.Context, method, path string, body io.Reader, v any) error {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Admin, "/")+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	key := cmp.Or(c.Key, c.Token)
	if method != http.MethodGet {
		key = cmp.Or(c.Token, c.Key) // acts name their principal
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	encryption, err := c.Trust.config("", "")
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: adminDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: encryption, DisableKeepAlives: true,
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return c.unanswered(method, connected.Load(), err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return c.refusal(answer)
	}
	if err := json.NewDecoder(answer.Body).Decode(v); err != nil {
		return c.unanswered(method, true, err)
	}
	return nil
}

// unanswered is the error of a question without an answer. A gateway that was connected may
// have done what it was asked, unless that was to show something.
func (c *adminCmd) unanswered(method string, connected bool, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // which method and which URL is said here
	}
	why := fmt.Sprintf("the gateway at %s gave no answer that can be read: %v", c.Admin, err)
	if errors.Is(err, context.DeadlineExceeded) {
		why = fmt.Sprintf("the gateway at %s did not answer within %v (--timeout)", c.Admin, c.Timeout)
	}
	switch {
	case !connected:
		return fmt.Errorf("the gateway at %s is not reached, and was asked nothing; --admin must be its --admin-listen: %w", c.Admin, err)
	case method == http.MethodGet:
		return errors.New(why)
	}
	return errors.New(why + "; whether it did what it was asked is unknown")
}

// refusal is the error of an answer that is no result.
func (c *adminCmd) refusal(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	var said admin.Refusal
	if json.Unmarshal(text, &said) == nil && said.Error != "" {
		return &adminRefusal{said}
	}
	hint := map[int]string{
		http.StatusUnauthorized: "; --admin-key must be that of the gateway, or --token an API key",
		http.StatusNotFound:     "; --admin must be the --admin-listen of a gateway",
	}[answer.StatusCode]
	return fmt.Errorf("%s answered %s: %s%s", c.Admin, answer.Status, strings.TrimSpace(string(text)), hint)
}

// adminRefusal is what a gateway said instead of doing it.
type adminRefusal struct{ said admin.Refusal }

// Error implements error.
func (e *adminRefusal) Error() string { return e.said.Error }

// ask asks the gateway for an operation. A refusal is an *adminRefusal.
func ask[Q, R any](ctx context.Context, c *adminCmd, o admin.Operation[Q, R], q Q) (R, error) {
	return o.Ask(q, func(method, path string, body io.Reader, answer any) error {
		return c.ask(ctx, method, path, body, answer)
	})
}

// tell asks, and prints the answer as JSON or by table.
func tell[Q, R any](
	ctx context.Context, p *program, c *adminCmd, o admin.Operation[Q, R], q Q, table func(io.Writer, *R) error,
) (*R, error) {
	said, err := ask(ctx, c, o, q)
	if err == nil {
		err = c.print(p.stdout, &said, func(w io.Writer) error { return table(w, &said) })
	}
	return &said, err
}

// print prints v as JSON, or by table.
func (c *adminCmd) print(w io.Writer, v any, table func(io.Writer) error) error {
	if !c.JSON {
		return table(w)
	}
	return json.NewEncoder(w).Encode(v)
}
