package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"noncegate/nonce"
)

// Read implements nonce.Fast.
func (s *Store) Read(ctx context.Context, now time.Time, reads []nonce.FastRead) []nonce.FastSnapshot {
	calls := make([]call, len(reads))
	for i := range reads {
		calls[i] = s.read(now, &reads[i])
	}
	snaps := make([]nonce.FastSnapshot, len(reads))
	answers := s.run(ctx, "read", calls)
	for i := range answers {
		r, snap := &reads[i], &snaps[i]
		snap.Verdict, snap.Err = answers[i].verdict(known(r.Identity), r.Signer)
		if snap.Verdict != nonce.FastDone {
			continue
		}
		if err := fill(&snap.Snapshot, &r.Need, r.Signer, answers[i].reply); err != nil {
			res := lost(r.Signer, err)
			*snap = nonce.FastSnapshot{Verdict: res.Verdict, Err: res.Err}
			continue
		}
		snap.Now = now
	}
	return snaps
}

func (s *Store) read(now time.Time, r *nonce.FastRead) call {
	k := s.keys(r.Signer)
	keys := append(make([]string, 0, 3+len(r.Need.RequestIDs)), k.rows, k.held, k.released)
	for _, id := range r.Need.RequestIDs {
		keys = append(keys, k.request(r.Version, id))
	}
	released := 0
	if r.Need.Released > 0 {
		released = r.Need.Released + 1 // whether there are more
	}
	args := append(make([]any, 0, 5+len(r.Need.Nonces)),
		belief(r.ID, r.Token, r.Version), num(nonce.NextEpoch(r.Version)),
		strconv.Itoa(released), num(now.UnixMicro()), strconv.Itoa(r.Need.Due))
	for _, n := range r.Need.Nonces {
		args = append(args, num(n))
	}
	script := readScript
	switch {
	case r.TakeOver:
		script = takeOverScript
	case r.Serve:
		script = serveScript
	}
	return call{script: script, keys: keys, args: args}
}

// fill makes a snapshot of what the script answered. An error says that something is
// not as it was written.
func fill(snap *nonce.Snapshot, need *nonce.Need, signer string, reply any) error {
	parts, _ := reply.([]any)
	if len(parts) != 6 {
		return fmt.Errorf("an answer of %d parts: %w", len(parts), errForm)
	}
	text, _ := parts[1].(string)
	st, err := parseState(text)
	if err != nil {
		return err
	}
	*snap = nonce.Snapshot{
		Signer: signer, Exists: true, ID: st.id, Next: st.next, Floor: st.floor, Version: st.version, Held: st.held,
	}
	rows, err := snapRows(snap, parts[4])
	if err != nil {
		return err
	}
	for _, text := range texts(parts[2]) {
		row, err := found(rows, text, nonce.Released)
		if err != nil {
			return err
		}
		if snap.ReleasedMore = len(snap.Released) == need.Released; !snap.ReleasedMore {
			snap.Released = append(snap.Released, row.Nonce)
		}
	}
	for _, text := range texts(parts[3]) {
		row, err := found(rows, text, nonce.Held)
		if err != nil {
			return err
		}
		snap.Due = append(snap.Due, row)
	}
	values, _ := parts[5].([]any)
	for i, value := range values {
		text, ok := value.(string)
		if !ok || i >= len(need.RequestIDs) {
			continue // the id is new
		}
		req, err := parseRequest(need.RequestIDs[i], text)
		if err != nil {
			return err
		}
		snap.Requests = append(snap.Requests, req)
	}
	return nil
}

// snapRows puts the rows into the snapshot, each once, and returns them by nonce.
func snapRows(snap *nonce.Snapshot, part any) (map[string]nonce.Row, error) {
	all := texts(part)
	rows := make(map[string]nonce.Row, len(all)/2)
	for i := 0; i+1 < len(all); i += 2 {
		if _, twice := rows[all[i]]; twice {
			continue
		}
		row, err := parseRow(all[i], all[i+1])
		if err != nil {
			return nil, err
		}
		rows[all[i]] = row
		snap.Rows = append(snap.Rows, row)
	}
	return rows, nil
}

// found is the row of a member of one of the sets.
func found(rows map[string]nonce.Row, number string, status nonce.Status) (nonce.Row, error) {
	row, ok := rows[number]
	if !ok || row.Status != status {
		return row, fmt.Errorf("nonce %s is not %v in its row: %w", number, status, nonce.ErrInvariant)
	}
	return row, nil
}

// texts are the elements of an answer that are texts.
func texts(part any) []string {
	all, _ := part.([]any)
	out := make([]string, 0, len(all))
	for _, one := range all {
		if text, ok := one.(string); ok {
			out = append(out, text)
		}
	}
	return out
}
