package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// otherChain is asked about the signer of each allocation. It returns a sentence where
// the signer's chain is not configured, others are, and such signers are refused: their
// nonces would begin at 0, whatever the account has sent. nil: they are not looked for.
func (a *app) otherChain() func(signer string) string {
	list, err := a.cfg.Chains()
	if err != nil || len(list) == 0 || a.cfg.OtherChains == "allow" {
		return nil
	}
	var known []string
	for _, l := range list {
		known = append(known, l.ID)
	}
	said := rate.Sometimes{First: 3, Interval: time.Minute}
	return func(signer string) string {
		id, account := signer, strings.LastIndexByte(signer, ':')
		if account > 0 {
			id = signer[:account]
		}
		if !strings.HasPrefix(id, "eip155:") || slices.Contains(known, id) {
			return ""
		}
		why := fmt.Sprintf("no chain %s is configured, so that nobody knows where the account stands; there is %s", id, strings.Join(known, ", "))
		if a.cfg.OtherChains == "refuse" {
			return why
		}
		said.Do(func() { a.log.Warn(why, "signer", signer) })
		return ""
	}
}
