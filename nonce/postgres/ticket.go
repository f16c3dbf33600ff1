package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/access/ticket"
)

var _ ticket.Store = (*Store)(nil)

// PutTicket implements ticket.Store. The tickets of the principal are counted by their
// index, and not beyond the bound; those of other transactions that have not ended are
// not seen.
func (s *Store) PutTicket(ctx context.Context, h ticket.Hash, g ticket.Grant, ttl time.Duration, most int) (expires time.Time, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Release()
	var ends *time.Time
	if !g.Ends.IsZero() {
		ends = &g.Ends
	}
	err = conn.QueryRow(ctx, `
		INSERT INTO auth_ticket (hash, principal, credential, ends_at, expires_at)
		SELECT $1, $2, $3, $4, clock_timestamp() + $5::bigint * interval '1 microsecond'
		WHERE (SELECT count(*) FROM (SELECT 1 FROM auth_ticket WHERE principal = $2 AND expires_at > clock_timestamp() LIMIT $6) unused) < $6
		RETURNING expires_at`, h[:], g.Principal, g.Credential, ends, ttl.Microseconds(), most).Scan(&expires)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, ticket.ErrTooMany
	}
	return expires, storeError("keep the ticket", err)
}

// TakeTicket implements ticket.Store. Of two that delete a row, the second waits for
// the first and then finds nothing.
func (s *Store) TakeTicket(ctx context.Context, h ticket.Hash) (g ticket.Grant, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return ticket.Grant{}, err
	}
	defer conn.Release()
	var ends *time.Time
	var good bool
	err = conn.QueryRow(ctx, `
		DELETE FROM auth_ticket WHERE hash = $1 RETURNING principal, credential, ends_at, expires_at > clock_timestamp()`, h[:]).
		Scan(&g.Principal, &g.Credential, &ends, &good)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !good {
		return ticket.Grant{}, ticket.ErrUnknown
	}
	if err != nil {
		return ticket.Grant{}, storeError("take the ticket", err)
	}
	g.Ends = orNever(ends)
	return g, nil
}

// PruneTickets implements ticket.Store, by the index of expires_at: clock_timestamp()
// is put into a subquery so that it is read once.
func (s *Store) PruneTickets(ctx context.Context) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, `DELETE FROM auth_ticket WHERE expires_at <= (SELECT clock_timestamp())`)
	return storeError("delete old tickets", err)
}
