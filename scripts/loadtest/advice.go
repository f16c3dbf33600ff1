package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"github.com/gorilla/websocket"

	"noncegate/client"
)

// negative is a number below zero as it stands on a command line.
var negative = regexp.MustCompile(`^-[0-9.]`)

// joinNegative makes --flag=-1 of --flag -1. No flag of ours is a digit, and so
// the value is judged by the flag's own rule; kong takes it for a flag otherwise,
// and its setting that does not would let any flag take the next one for its
// value.
func joinNegative(args []string) []string {
	var joined []string
	for _, arg := range args {
		last := len(joined) - 1
		if negative.MatchString(arg) && last >= 0 && strings.HasPrefix(joined[last], "--") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// AfterApply completes the addresses once kong has read them.
func (f *targetFlags) AfterApply() error {
	for i, text := range f.URL {
		f.URL[i] = withPath(text)
	}
	return nil
}

// withPath gives an address without a path that of a gateway, as package client
// does.
func withPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return address
	}
	u.Path = "/ws"
	return u.String()
}

// advised adds to the error of a load on gateways that somebody else has started
// what is wrong most often.
func advised(err error) error {
	dial, _ := errors.AsType[*client.DialError](err)
	switch {
	case err == nil:
		return nil
	case refused(err):
		return fmt.Errorf("%w; is the gateway running? (make run)", err)
	case dial != nil && dial.Status == http.StatusNotFound,
		strings.Contains(err.Error(), websocket.ErrBadHandshake.Error()+": 404"):
		return fmt.Errorf("%w; a gateway takes WebSockets at /ws", err)
	}
	return err
}

// refused reports whether nobody listens at an address. Windows has an error
// number of its own for it.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "actively refused it")
}
