package endpoint

import (
	"context"

	"noncegate/chain/ethereum/rawtx"
	"noncegate/nonce"
	"noncegate/wire"
)

// maxAuthorities bounds the authorizations of one transaction that are looked up. Each costs the
// recovery of a public key and a question to the store, which is what a request costs.
const maxAuthorities = 100

// authorized refuses a transaction with an EIP-7702 authorization that would use a nonce
// which another client holds: authorizations use nonces of their accounts as transactions
// do. Nonces without a holder are not taken for them; the chain's count shows their use,
// as it does that of a transaction from elsewhere.
func (s *sending) authorized(ctx context.Context) *wire.Error {
	if len(s.raw) == 0 || s.raw[0] != rawtx.SetCode {
		return nil
	}
	tx, err := rawtx.Decode(s.raw)
	if err != nil {
		return invalid("transaction", "%s; nothing was sent", clip(err.Error()))
	}
	if len(tx.Authorizations) > maxAuthorities {
		return invalid("authorizationList", "has %d elements, %d at most are looked up; nothing was sent", len(tx.Authorizations), maxAuthorities)
	}
	if err := s.call.ChargeMore(len(tx.Authorizations)); err != nil {
		return err
	}
	tx.RecoverAuthorities()
	for i := range tx.Authorizations {
		if a := &tx.Authorizations[i]; a.Valid && a.Nonce < 1<<63 {
			if err := s.authority(ctx, s.e.nodes.ID()+":"+a.Authority.String(), int64(a.Nonce)); err != nil {
				return err
			}
		}
	}
	return nil
}

// authority refuses an authorization that would use the nonce of a signer which another
// client holds, or has sent another transaction with.
func (s *sending) authority(ctx context.Context, signer string, n int64) *wire.Error {
	row, there, err := rowOf(s.call, signer, n)
	if err != nil {
		return err
	}
	me := s.call.Principal()
	if !there || row.Holder == 0 || me == 0 || row.Holder == me || row.Status == nonce.Released {
		return nil
	}
	if row.Status == nonce.Consumed && (row.TxHash == nonce.TxHash{} || n < s.e.mined(ctx, signer, accountOf(signer))) {
		return nil // it is used, and the chain will skip the authorization
	}
	refusal := wire.Rejectedf("not_holder",
		"an authorization of the transaction would use nonce %d of %s, which is held by somebody else; nothing was sent", n, signer)
	refusal.Data.Signer, refusal.Data.Nonce = signer, &n
	return refusal
}
