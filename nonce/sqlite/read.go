package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"noncegate/nonce"
)

// Load implements nonce.Ledger.
func (s *Store) Load(ctx context.Context, needs []nonce.Need) (snaps []nonce.Snapshot, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		snaps, err = c.load(ctx, needs, s.now())
		return err
	})
	return snaps, err
}

// load reads in the session's transaction, where all is of one moment.
func (c *session) load(ctx context.Context, needs []nonce.Need, now time.Time) ([]nonce.Snapshot, error) {
	snaps := make([]nonce.Snapshot, len(needs))
	for i := range needs {
		snaps[i] = nonce.Snapshot{Signer: needs[i].Signer, Now: now}
		if err := c.state(ctx, &snaps[i]); err != nil {
			return nil, fmt.Errorf("load signer %q: %w", needs[i].Signer, err)
		}
	}
	due, err := c.dueOf(ctx, needs, snaps, now)
	if err != nil {
		return nil, fmt.Errorf("load overdue holds: %w", err)
	}
	for i := range needs {
		if !snaps[i].Exists {
			continue
		}
		l := loader{session: c, snap: &snaps[i], have: map[int64]bool{}}
		if err := l.load(ctx, &needs[i], due[snaps[i].ID]); err != nil {
			return nil, fmt.Errorf("load signer %q: %w", needs[i].Signer, err)
		}
	}
	return snaps, nil
}

// dueOf finds the nonces of overdue holds of the signers that were asked for, by
// key of the signer, earliest deadline first.
func (c *session) dueOf(ctx context.Context, needs []nonce.Need, snaps []nonce.Snapshot, now time.Time) (map[int64][]int64, error) {
	open := map[int64]int{} // how many are still wanted
	for i := range needs {
		if want := min(int64(needs[i].Due), snaps[i].Held); want > 0 {
			open[snaps[i].ID] = int(want)
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	ids := make([]int64, 0, len(open))
	for id := range open {
		ids = append(ids, id)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	out := map[int64][]int64{}
	err = c.each(ctx, func(scan func(...any) error) (bool, error) {
		var id, n int64
		if err := scan(&id, &n); err != nil {
			return false, err
		}
		if open[id] > 0 {
			out[id] = append(out[id], n)
			if open[id]--; open[id] == 0 {
				delete(open, id)
			}
		}
		return len(open) > 0, nil
	}, sqlDueOf, now.UnixMicro(), string(list))
	return out, err
}

// loader fills one snapshot; each row once.
type loader struct {
	*session
	snap *nonce.Snapshot
	have map[int64]bool
}

func (l *loader) load(ctx context.Context, need *nonce.Need, due []int64) error {
	released, err := l.released(ctx, l.snap.ID, l.snap.Floor, need.Released+1)
	if err != nil {
		return err
	}
	if l.snap.ReleasedMore = len(released) > need.Released; l.snap.ReleasedMore {
		released = released[:need.Released]
	}
	for _, row := range released {
		l.snap.Released = append(l.snap.Released, row.Nonce)
		l.add(row)
	}
	for _, n := range due {
		row, _, err := l.row(ctx, l.snap.ID, n)
		if err != nil {
			return err
		}
		l.snap.Due = append(l.snap.Due, row)
		l.add(row)
	}
	if err := l.addAll(ctx, need.Nonces); err != nil {
		return err
	}
	for _, name := range need.RequestIDs {
		r, ok, err := l.request(ctx, l.snap.ID, name)
		if err != nil {
			return err
		}
		if ok {
			l.snap.Requests = append(l.snap.Requests, r)
		}
		if err := l.addAll(ctx, r.Nonces); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) add(row nonce.Row) {
	if !l.have[row.Nonce] {
		l.have[row.Nonce] = true
		l.snap.Rows = append(l.snap.Rows, row)
	}
}

// addAll reads the rows that exist and are not there yet.
func (l *loader) addAll(ctx context.Context, nonces []int64) error {
	for _, n := range nonces {
		if l.have[n] {
			continue
		}
		row, ok, err := l.row(ctx, l.snap.ID, n)
		if err != nil {
			return err
		}
		if ok {
			l.add(row)
		}
	}
	return nil
}
