//go:build unix

package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"noncegate/torture/history"
)

// readShards reads a file in which signers are in shards.
func (s *stored) readShards(ctx context.Context, db *sql.DB) error {
	at := make(map[int64]int) // by id of the signer
	const signers = `SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, d.fencing_token, s.live FROM signer s JOIN shard d USING (shard_id) ORDER BY s.signer_id`
	err := each(ctx, db, signers, func(scan func(...any) error) error {
		var v history.StoredSigner
		var id int64
		var live []byte
		if err := scan(&id, &v.Signer, &v.Next, &v.Floor, &v.Version, &v.Token, &live); err != nil {
			return err
		}
		v.Requests = make(map[string][]history.Given)
		at[id] = len(s.Signers)
		err := v.Lives(live)
		s.Signers = append(s.Signers, v)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(s.readPast(ctx, db, at), s.readAsked(ctx, db, at))
}

// readPast adds what was consumed.
func (s *stored) readPast(ctx context.Context, db *sql.DB, at map[int64]int) error {
	err := each(ctx, db, `SELECT signer_id, nonce, attempt, tx_hashes, reason FROM signer_history`, func(scan func(...any) error) error {
		var id int64
		row := history.Row{Status: history.Consumed}
		var hashes []byte
		if err := scan(&id, &row.Nonce, &row.Attempt, &hashes, &row.Reason); err != nil {
			return err
		}
		row.Recorded(hashes)
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("a consumed nonce of a signer that is not there")
		}
		s.Signers[i].Rows = append(s.Signers[i].Rows, row)
		return nil
	})
	for i := range s.Signers {
		slices.SortStableFunc(s.Signers[i].Rows, func(a, b history.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	}
	return err
}

// readAsked adds the request ids.
func (s *stored) readAsked(ctx context.Context, db *sql.DB, at map[int64]int) error {
	return each(ctx, db, `SELECT signer_id, request_id, nonces FROM signer_request`, func(scan func(...any) error) error {
		var id int64
		var request string
		var nonces []byte
		if err := scan(&id, &request, &nonces); err != nil {
			return err
		}
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("request %q of a signer that is not there", request)
		}
		given, err := history.ParseGiven(nonces)
		s.Signers[i].Requests[request] = given
		s.requests[requestKey{s.Signers[i].Signer, request}] = given
		return err
	})
}
