package sqlite

import (
	"context"
	"database/sql"
	"time"

	"noncegate/internal/access/ticket"
)

var _ ticket.Store = (*Store)(nil)

// Tickets, by primary key, and by the index of what each statement asks for.
const (
	sqlTicketUnused = `SELECT count(*) FROM auth_ticket WHERE principal = ? AND expires_at > ?`

	sqlTicketInsert = `INSERT INTO auth_ticket (hash, principal, credential, ends_at, expires_at) VALUES (?, ?, ?, ?, ?)`

	sqlTicketTake = `DELETE FROM auth_ticket WHERE hash = ? RETURNING principal, credential, ends_at, expires_at`

	sqlTicketPrune = `DELETE FROM auth_ticket WHERE expires_at <= ?`
)

// PutTicket implements ticket.Store.
func (s *Store) PutTicket(ctx context.Context, h ticket.Hash, g ticket.Grant, ttl time.Duration, most int) (expires time.Time, err error) {
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		now := s.now()
		unused, err := c.count(ctx, sqlTicketUnused, g.Principal, now.UnixMicro())
		if err != nil {
			return err
		}
		if unused >= int64(most) {
			return errPlan{ticket.ErrTooMany}
		}
		expires = now.Add(ttl)
		ends := sql.NullInt64{Int64: g.Ends.UnixMicro(), Valid: !g.Ends.IsZero()}
		_, err = c.exec(ctx, sqlTicketInsert, h[:], g.Principal, g.Credential, ends, expires.UnixMicro())
		return err
	})
	return expires, err
}

// TakeTicket implements ticket.Store.
func (s *Store) TakeTicket(ctx context.Context, h ticket.Hash) (g ticket.Grant, err error) {
	found := false
	err = s.write(ctx, func(ctx context.Context, c *session) error {
		var ends sql.NullInt64
		var expires int64
		found, err = c.one(ctx, []any{&g.Principal, &g.Credential, &ends, &expires}, sqlTicketTake, h[:])
		found = found && expires > s.now().UnixMicro()
		g.Ends = orNever(ends)
		return err
	})
	if err == nil && !found {
		err = ticket.ErrUnknown
	}
	if err != nil {
		return ticket.Grant{}, err
	}
	return g, nil
}

// PruneTickets implements ticket.Store.
func (s *Store) PruneTickets(ctx context.Context) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		_, err := c.exec(ctx, sqlTicketPrune, s.now().UnixMicro())
		return err
	})
}
