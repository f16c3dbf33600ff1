package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"noncegate/nonce"
)

// Summary implements nonce.Fast.
func (s *Store) Summary(ctx context.Context, signer string, identity nonce.Identity, now time.Time) (nonce.Summary, nonce.FastResult) {
	k := s.keys(signer)
	answers := s.run(ctx, "summary", []call{{
		script: summaryScript, keys: []string{k.rows, k.held, k.released}, args: []any{num(now.UnixMicro()), nonce.ReasonUnknown},
	}})
	var r nonce.FastResult
	r.Verdict, r.Err = answers[0].verdict(known(identity), signer)
	if r.Verdict != nonce.FastDone {
		return nonce.Summary{}, r
	}
	sum, err := summary(answers[0].reply)
	if err != nil {
		return nonce.Summary{}, lost(signer, err)
	}
	return sum, r
}

func summary(reply any) (nonce.Summary, error) {
	parts, _ := reply.([]any)
	if len(parts) != 6 {
		return nonce.Summary{}, fmt.Errorf("an answer of %d parts: %w", len(parts), errForm)
	}
	text, _ := parts[1].(string)
	st, err := parseState(text)
	if err != nil {
		return nonce.Summary{}, err
	}
	above, ok1 := parts[2].(int64)
	below, ok2 := parts[3].(int64)
	lowest, ok3 := parts[4].(string)
	unknown, ok4 := parts[5].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return nonce.Summary{}, fmt.Errorf("figures %v: %w", parts[2:], errForm)
	}
	sum := nonce.Summary{
		Exists: true, Next: st.next, Floor: st.floor, Version: st.version,
		Held: st.held - above - below, Released: st.released + above, LowestHeld: -1,
		Overdue: above, Unknown: unknown,
	}
	sum.Consumed = sum.Next - sum.Held - sum.Released
	if lowest != "" {
		if sum.LowestHeld, ok1 = parseNum(lowest); !ok1 {
			return nonce.Summary{}, fmt.Errorf("nonce %q: %w", lowest, errForm)
		}
	}
	return sum, nil
}

// scanRows is how many rows are looked at by one command of Rows, at the least.
const scanRows = 1000

// Rows implements nonce.Fast. It is no snapshot: each row is as it was at some time
// during the call, and a row that comes or goes meanwhile may be there or not. All
// rows of the signer are read, a part at a time, so that Redis never waits long.
func (s *Store) Rows(ctx context.Context, signer string, identity nonce.Identity, from int64, limit int) ([]nonce.Row, nonce.FastResult) {
	rows := make(map[int64]nonce.Row)
	cursor, exists := "0", false
	for {
		page, next, res := s.scan(ctx, signer, identity, cursor)
		if res.Verdict != nonce.FastDone {
			return nil, res
		}
		for i := 0; i+1 < len(page); i += 2 {
			if page[i] == "s" {
				exists = true
				continue
			}
			row, err := parseRow(page[i], page[i+1])
			if err != nil && page[i] != "seed" && page[i] != "serves" {
				return nil, lost(signer, err)
			}
			if err == nil && row.Nonce >= from {
				rows[row.Nonce] = row
			}
		}
		if rows = lowest(rows, limit); next == "0" {
			break
		}
		cursor = next
	}
	if !exists {
		return nil, lost(signer, errors.New("there is no state"))
	}
	out := make([]nonce.Row, 0, len(rows))
	for _, row := range rows {
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	return out[:min(limit, len(out))], nonce.FastResult{}
}

// lowest forgets rows that are not among the first limit, now and then.
func lowest(rows map[int64]nonce.Row, limit int) map[int64]nonce.Row {
	if len(rows) < 2*limit+scanRows {
		return rows
	}
	numbers := make([]int64, 0, len(rows))
	for n := range rows {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers[limit:] {
		delete(rows, n)
	}
	return rows
}

func lost(signer string, err error) nonce.FastResult {
	return nonce.FastResult{Verdict: nonce.FastLost, Err: fmt.Errorf("signer %s: %w: %w", signer, nonce.ErrLost, err)}
}

// scan reads a part of the rows.
func (s *Store) scan(ctx context.Context, signer string, identity nonce.Identity, cursor string) ([]string, string, nonce.FastResult) {
	answers := s.run(ctx, "rows", []call{{
		script: scanScript, keys: []string{s.keys(signer).rows}, args: []any{cursor, strconv.Itoa(scanRows)},
	}})
	var r nonce.FastResult
	if r.Verdict, r.Err = answers[0].verdict(known(identity), signer); r.Verdict != nonce.FastDone {
		return nil, "", r
	}
	parts, _ := answers[0].reply.([]any)
	if len(parts) != 3 {
		return nil, "", lost(signer, errForm)
	}
	next, _ := parts[1].(string)
	return texts(parts[2]), next, r
}
