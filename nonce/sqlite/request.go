package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"noncegate/nonce"
)

// Remembered requests, by primary key; signer_nonce_request_created serves the
// pruning alone.
const (
	sqlInsertRequest = `
INSERT INTO signer_nonce_request (signer_id, request_id, request_hash, nonces, created_at) VALUES (?, ?, ?, ?, ?)`

	sqlRequest = `SELECT request_hash, nonces FROM signer_nonce_request WHERE signer_id = ? AND request_id = ?`

	sqlKnowsRequest = `SELECT count(*) FROM signer_nonce_request WHERE signer_id = ? AND request_id = ?`

	sqlPrune = `
DELETE FROM signer_nonce_request WHERE (signer_id, request_id) IN
    (SELECT signer_id, request_id FROM signer_nonce_request WHERE created_at < ? ORDER BY created_at LIMIT ?)`
)

// knows reports whether one of the requests is remembered.
func (c *session) knows(ctx context.Context, id int64, requests []nonce.Request) (bool, error) {
	for i := range requests {
		if n, err := c.count(ctx, sqlKnowsRequest, id, requests[i].ID); err != nil || n > 0 {
			return n > 0, err
		}
	}
	return false, nil
}

func (c *session) insertRequest(ctx context.Context, id int64, r *nonce.Request, now time.Time) error {
	pairs := make([][2]int64, len(r.Nonces))
	for i := range pairs {
		pairs[i] = [2]int64{r.Nonces[i], r.Attempts[i]}
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return err
	}
	_, err = c.exec(ctx, sqlInsertRequest, id, r.ID, r.Hash[:], string(text), now.UnixMicro())
	return err
}

// request reads one remembered request.
func (c *session) request(ctx context.Context, id int64, name string) (nonce.Request, bool, error) {
	r := nonce.Request{ID: name}
	var hash, text []byte
	ok, err := c.one(ctx, []any{&hash, &text}, sqlRequest, id, name)
	if err != nil || !ok {
		return r, false, err
	}
	copy(r.Hash[:], hash)
	var pairs [][2]int64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return r, false, fmt.Errorf("nonces of request %q: %w", name, err)
	}
	for _, p := range pairs {
		r.Nonces, r.Attempts = append(r.Nonces, p[0]), append(r.Attempts, p[1])
	}
	return r, true, nil
}

// requestsByNonce tells which request each nonce of a change is handed out to, as
// a column's value.
func requestsByNonce(requests []nonce.Request) map[int64]any {
	if len(requests) == 0 {
		return nil
	}
	out := map[int64]any{}
	for i := range requests {
		for _, n := range requests[i].Nonces {
			out[n] = requests[i].ID
		}
	}
	return out
}

// PruneRequests implements nonce.Reader.
func (s *Store) PruneRequests(ctx context.Context, age time.Duration, limit int) (int, error) {
	var pruned int64
	err := s.write(ctx, func(ctx context.Context, c *session) (err error) {
		pruned, err = c.exec(ctx, sqlPrune, s.now().Add(-age).UnixMicro(), limit)
		return err
	})
	return int(pruned), err
}
