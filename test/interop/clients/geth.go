// Package clients sends transactions with nonces of the gateway by go-ethereum's bindings.
package clients

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"regexp"

	"github.com/ethereum/go-ethereum/accounts/abi/bind/v2"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"noncegate/client"
)

var refused = regexp.MustCompile(`(?i)insufficient funds|intrinsic gas|exceeds block gas limit`) // only these give a nonce back
var known = regexp.MustCompile(`(?i)already known|known transaction|already imported`)

// Send sends what build makes, such as a method of a binding. With an error, tx may have been sent unless it is ErrNotSent.
// An allocation of unknown outcome is asked for again by its request id until ctx ends.
func Send(ctx context.Context, gateway *client.Client, node *ethclient.Client, signer string, auth bind.TransactOpts, build func(*bind.TransactOpts) (*types.Transaction, error)) (tx *types.Transaction, err error) {
	options, held := client.NonceOptions{RecordFirst: true}, false
	use := func(ctx context.Context, n *client.HeldNonce) (string, error) {
		held = true
		auth.Context, auth.Nonce, auth.NoSend = ctx, big.NewInt(n.Nonce), true
		if tx, err = build(&auth); err != nil || tx.Nonce() != uint64(n.Nonce) {
			return "", cmp.Or(err, fmt.Errorf("build changed nonce %d", n.Nonce)) // nothing is recorded: given back
		}
		if err := n.Signed(ctx, tx.Hash().Hex()); err != nil {
			return "", err // and nothing is sent
		}
		if err := node.SendTransaction(ctx, tx); err != nil && !known.MatchString(err.Error()) {
			if refused.MatchString(err.Error()) {
				err = fmt.Errorf("%w: %w", client.ErrNotSent, err) // given back
			}
			return "", err // otherwise, as after a time-out, nobody knows: the hold stays
		}
		return tx.Hash().Hex(), nil // marked used
	}
	var unknown *client.UnknownOutcomeError
	for err = gateway.WithNonce(ctx, signer, options, use); !held && errors.As(err, &unknown) && ctx.Err() == nil; {
		options.RequestID = unknown.RequestID // the first try may have been granted a nonce: this finds it
		err = gateway.WithNonce(ctx, signer, options, use)
	}
	if unknown != nil && !held && !errors.Is(err, client.ErrConflict) {
		err = errors.Join(unknown, err) // no other refusal settles it
	}
	return tx, err
}
