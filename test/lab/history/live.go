package history

import (
	"fmt"

	gateway "noncegate/nonce"
)

// Lives fills in the nonces that are HELD or RELEASED, from what a signer's row says of them. Next must be known.
func (s *StoredSigner) Lives(live []byte) error {
	entries, err := gateway.ParseLive(live, s.Next)
	if err != nil {
		return fmt.Errorf("signer %s: %w", s.Signer, err)
	}
	s.Held, s.Rows = 0, nil
	for i := range entries {
		e := entries[i].Row()
		row := Row{Nonce: e.Nonce, Status: Released, Attempt: e.Attempt, Reason: e.Reason}
		row.Recorded(gateway.AppendHashes(nil, e.TxHash, e.Replaced))
		if e.Status == gateway.Held {
			row.Status, row.HeldUntil = Held, e.HeldUntil.UnixMilli()
			s.Held++
		}
		s.Rows = append(s.Rows, row)
	}
	return nil
}

// ParseGiven reads what a request id got as stores of shards keep it.
func ParseGiven(text []byte) (given []Given, err error) {
	var q gateway.Remembered
	err = q.UnpackNonces(text)
	for i, n := range q.Nonces {
		given = append(given, Given{n, q.Attempts[i]})
	}
	return given, err
}
