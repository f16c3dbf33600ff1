package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/chain/ethereum/endpoint"
	"noncegate/internal/admin"
	"noncegate/nonce"
)

// openChains makes what asks the chains of --chain. It asks nothing yet.
func (a *app) openChains(ctx context.Context) error {
	list, err := a.cfg.Chains()
	if err == nil {
		err = a.orphans(ctx, list)
	}
	if err != nil || len(list) == 0 {
		return err
	}
	all, windows, err := a.cfg.windows()
	if err != nil {
		return err
	}
	a.ethereum = make(map[string]*ethereum.Client, len(list))
	var trackers []*chain.Tracker
	for _, l := range list {
		client, err := a.openChain(l)
		if err != nil {
			return err
		}
		delegated, err := a.cfg.delegatedWindow(l.ID)
		if err != nil {
			return err
		}
		t := chain.New(client, chain.Config{
			Window: all, Windows: windows, DelegatedWindow: delegated, UnknownFor: cmp.Or(a.cfg.UnknownTTL, -1), GapAfter: a.cfg.ChainGapAfter,
			StuckAfter: cmp.Or(a.cfg.ChainStuckAfter, -1), Timeout: a.cfg.ChainTimeout,
			MaxSigners: a.cfg.MaxSigners + a.cfg.MaxSigners/4, // those that are only read, too
		}, a.registry, a.log)
		a.ethereum[l.ID], trackers = client, append(trackers, t)
	}
	c := chain.ChainsConfig{Wait: a.cfg.ChainWait, Others: chain.Others(a.cfg.OtherChains), Store: a.store}
	if a.router != nil {
		c.Ask = a.router.Ask
	}
	a.chains = chain.NewChains(trackers, c, a.log)
	a.chain = a.chains
	return nil
}

// orphans refuses a start, or warns, where the store has holds that are unknown to chains which are
// not configured any more: no node is asked what became of them, and they stay as they are.
func (a *app) orphans(ctx context.Context, list []ChainNodes) error {
	var first string
	count := 0
	for q := (nonce.SignersQuery{Filter: nonce.UnknownSigners, Limit: admin.MaxSignerList}); ; {
		rows, err := a.store.Signers(ctx, q)
		if err != nil {
			return err
		}
		for i := range rows {
			name := rows[i].Signer
			of := name[:max(0, strings.LastIndexByte(name, ':'))]
			if strings.HasPrefix(of, "eip155:") && !slices.ContainsFunc(list, func(l ChainNodes) bool { return l.ID == of }) {
				first, count = cmp.Or(first, name), count+1
			}
			q.After = name
		}
		if len(rows) < q.Limit {
			break
		}
	}
	switch {
	case count == 0:
	case a.cfg.UnknownOrphans == "keep":
		a.log.Warn("holds are unknown of signers whose chain is not configured: they stay until somebody says what became of them",
			"signers", count, "first", first)
	default:
		return settingErrorf("chain", "lacks the chain of %s, of which a hold is unknown (%d such signers): configure it, "+
			"or say --unknown-orphans keep, and then such holds stay until somebody says what became of them", first, count)
	}
	return nil
}

func (a *app) openChain(l ChainNodes) (*ethereum.Client, error) {
	blocks, err := a.cfg.finality(l.ID)
	if err != nil {
		return nil, err
	}
	finality := "finalized"
	if blocks > 0 {
		finality = strconv.Itoa(blocks)
	}
	client, err := ethereum.New(ethereum.Config{
		ID: l.ID, Nodes: l.Nodes, Finality: finality, Lag: a.cfg.ChainLag, PollInterval: a.cfg.ChainPoll, Timeout: a.cfg.ChainTimeout,
		MaxWaiting: endpoint.Bounds(a.cfg.MaxInflight).MaxInflightTotal,
	}, a.registry, a.log)
	if wrong, ok := errors.AsType[*ethereum.SettingError](err); ok {
		return nil, settingErrorf("chain", "cannot be used: %s", wrong.Error())
	}
	return client, err
}

// startChains begins to follow them. It ends before the service does, and after the
// last connection, whose requests may wait for a chain.
func (a *app) startChains(context.Context) error {
	if a.chains == nil {
		return nil
	}
	a.chains.Serve(a.service, a.hub)
	a.background("chains", a.chains.Run)
	return nil
}

// openEndpoints serves the JSON-RPC of each chain on /eth/ and the chain's number.
func (a *app) openEndpoints(context.Context) error {
	list, err := a.cfg.Chains()
	if err != nil {
		return err
	}
	var all []*endpoint.Endpoint
	for _, l := range list {
		events := endpoint.Events{Sink: a.hub, WorkerIndex: a.service.WorkerIndex}
		e, err := endpoint.New(a.ethereum[l.ID], a.chains, events, a.store, endpoint.Config{
			Take: a.cfg.EthTake == "on", ReadyWait: a.cfg.ChainWait, Replaces: a.cfg.replaces(),
		}, a.registry, a.log)
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	a.background("offering of transactions", endpoint.NewOfferer(a.service, a.store, a.log, all...).Run)
	a.endpoints, err = endpoint.Handler(a.server, endpoint.Bounds(a.cfg.MaxInflight), all...)
	return err
}
