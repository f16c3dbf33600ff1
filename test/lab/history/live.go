package history

import (
	"encoding/json"
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
		row.Recorded(gateway.JoinHashes(e.TxHash, e.Replaced))
		if e.Status == gateway.Held {
			row.Status, row.HeldUntil = Held, e.HeldUntil.UnixMilli()
			s.Held++
		}
		s.Rows = append(s.Rows, row)
	}
	return nil
}

// ParseGiven reads what a request id got as stores of shards keep it, [[nonce, attempt], ...].
func ParseGiven(text []byte) ([]Given, error) {
	var pairs [][2]int64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return nil, fmt.Errorf("what a request id got: %w", err)
	}
	given := make([]Given, len(pairs))
	for i, p := range pairs {
		given[i] = Given{p[0], p[1]}
	}
	return given, nil
}
