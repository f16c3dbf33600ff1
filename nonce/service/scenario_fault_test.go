package service_test

import (
	"regexp"
	"slices"
	"strings"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// fault is what becomes of some calls of the store.
type fault struct {
	words []string
	act   func(memstore.Call) error
}

// heal ends all faults.
func (s *scenario) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// meets has a call meet the newest fault that is for it.
func (s *scenario) meets(c memstore.Call, after bool) error {
	s.mu.Lock()
	if !after {
		s.calls[string(c.Op)]++
		for _, w := range c.Writes {
			if w.DueAt > 0 {
				s.listings++
			}
		}
	}
	at := slices.IndexFunc(s.faults, func(f *fault) bool { return slices.Contains(f.words, "after") == after && f.meets(c) })
	var f *fault
	if at >= 0 {
		if f = s.faults[at]; slices.Contains(f.words, "once") {
			s.faults = slices.Delete(s.faults, at, at+1)
		}
	}
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.act(c)
}

func (f *fault) meets(c memstore.Call) bool {
	if f.words[0] != "any" && f.words[0] != string(c.Op) {
		return false
	}
	for _, word := range f.words[1:] {
		key, value, _ := strings.Cut(word, "=")
		is := true
		switch key {
		case "node":
			is = c.Holder.Node == value
		case "of":
			if value == "signer" {
				value = signer
			}
			is = touches(c, c.Op, value)
		case "writes":
			is = slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.Name == value })
		case "writing":
			is = len(c.Writes) > 0
		case "ending": // holds that are over
			is = slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.NotBefore != 0 })
		case "marking":
			is = slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return len(w.History) > 0 })
		case "several":
			is = len(c.Shards)+len(c.Terms) > 1
		case "terms":
			is = len(c.Terms) > 0
		case "rising": // by more than one version
			is = slices.ContainsFunc(c.Writes, func(w nonce.Write) bool { return w.Rise > 1 })
		}
		if !is {
			return false
		}
	}
	return true
}

// outcomes are how calls fail.
var outcomes = map[string]func(memstore.Call) error{
	"none":      storeAway,
	"unknown":   cut,
	"aborted":   func(memstore.Call) error { return errLocked },
	"invariant": func(memstore.Call) error { return refusedRow },
	"silent":    silent,
	"well":      func(memstore.Call) error { return nil },
}

// fault adds one, before those that there are.
func (s *scenario) fault(words []string, act func(memstore.Call) error) {
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "_", " ") // "turn_on"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.Insert(s.faults, 0, &fault{words, act})
}

var inShard = regexp.MustCompile(`@(\d)([b-d]?)`)
