package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"noncegate/internal/admin"
	"noncegate/nonce"
)

// Of a hold that is unknown to a chain nobody asks any more, nobody finds out what became of it.
// figuresStore is a store that has only these signers, in the order of the names.
type figuresStore struct {
	nonce.Store
	signers []nonce.SignerFigures
}

func (s *figuresStore) Signers(_ context.Context, q nonce.SignersQuery) (out []nonce.SignerFigures, err error) {
	for i := range s.signers {
		if f := &s.signers[i]; f.Signer > q.After && f.Unknown > 0 && len(out) < q.Limit {
			out = append(out, *f)
		}
	}
	return out, nil
}

func TestAStartRefusesUnknownHoldsOfChainsThatAreNotConfigured(t *testing.T) {
	const kept, other, alike = "eip155:1:0xaa", "eip155:2:0xaa", "eip155:10:0xaa"
	unknown := func(names ...string) (list []nonce.SignerFigures) {
		for _, name := range names {
			list = append(list, nonce.SignerFigures{Signer: name, Unknown: 1})
		}
		return list
	}
	many := unknown("alone") // with this one a page is full before the signer of another chain
	for i := range admin.MaxSignerList {
		many = append(many, nonce.SignerFigures{Signer: fmt.Sprintf("eip155:1:%04d", i), Unknown: 1})
	}
	for name, c := range map[string]struct {
		has    []nonce.SignerFigures
		chains []ChainNodes
		count  int
		first  string
	}{
		"of a chain that is configured":             {unknown(kept), []ChainNodes{{ID: "eip155:1"}}, 0, ""},
		"of none":                                   {unknown("a:b", "alone"), nil, 0, ""},
		"of another chain":                          {unknown(kept, other), []ChainNodes{{ID: "eip155:1"}}, 1, other},
		"of another chain whose name begins alike":  {unknown(alike), []ChainNodes{{ID: "eip155:1"}}, 1, alike},
		"of two chains, and none is configured":     {unknown(kept, other), nil, 2, kept},
		"on the second page":                        {append(many, unknown(other)...), []ChainNodes{{ID: "eip155:1"}}, 1, other},
		"a signer of another chain, with none held": {[]nonce.SignerFigures{{Signer: other}}, nil, 0, ""},
	} {
		for _, policy := range []string{"refuse", "keep"} {
			var out bytes.Buffer
			a := &app{
				cfg: &Config{ChainConfig: ChainConfig{UnknownOrphans: policy}}, store: &figuresStore{signers: c.has},
				log: slog.New(slog.NewTextHandler(&out, nil)),
			}
			err := a.orphans(t.Context(), c.chains)
			wrong, refused := errors.AsType[*settingError](err)
			if refused != (c.count > 0 && policy == "refuse") || !refused && err != nil {
				t.Errorf("%s, %s: %v", name, policy, err)
			}
			if want := fmt.Sprintf("--chain lacks the chain of %s, of which a hold is unknown (%d such signers): configure it, or say --unknown-orphans keep", c.first, c.count); refused &&
				!strings.HasPrefix(wrong.Error(), want) {
				t.Errorf("%s: %q, want %s", name, wrong.Error(), want)
			}
			warned := strings.Contains(out.String(), fmt.Sprintf("signers=%d first=%s", c.count, c.first))
			if warned != (c.count > 0 && policy == "keep") || !warned && out.Len() > 0 {
				t.Errorf("%s, %s: the log says %q", name, policy, &out)
			}
		}
	}
}

func TestAHostThatDoesNotExistIsToldFromOneThatIsAway(t *testing.T) {
	missing := &net.DNSError{Err: "no such host", Name: "HOST", IsNotFound: true}
	slow := &net.DNSError{Err: "i/o timeout", Name: "HOST", IsTimeout: true}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("hostname resolving error: %w", missing), true},
		{errors.Join(missing, missing), true},
		{errors.Join(missing, refused), false}, // of two hosts one exists
		{slow, false},
		{refused, false},
		{nil, false},
	} {
		if got := noSuchHost(c.err); got != c.want {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}
