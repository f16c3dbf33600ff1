package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// rememberNames inserts in order of key, so that two of them cannot deadlock.
const rememberNames = `
INSERT INTO gateway_principal (principal, name)
SELECT w.principal, w.name FROM unnest($1::bigint[], $2::text[]) w(principal, name) ORDER BY w.principal
ON CONFLICT (principal) DO NOTHING`

const namesOf = `SELECT p.principal, p.name FROM gateway_principal p WHERE p.principal = ANY ($1::bigint[])`

// RememberNames implements nonce.Names.
func (s *Store) RememberNames(ctx context.Context, names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	keys := make([]int64, len(names))
	for i, name := range names {
		keys[i] = int64(nonce.PrincipalOf(name))
	}
	_, err := s.change(ctx, "remember names of principals", rememberNames, keys, names)
	return err
}

// NamesOf implements nonce.Names.
func (s *Store) NamesOf(ctx context.Context, of []nonce.Principal) (map[nonce.Principal]string, error) {
	keys := make([]int64, len(of))
	for i, p := range of {
		keys[i] = int64(p)
	}
	names := make(map[nonce.Principal]string, len(of))
	return names, s.moment(ctx, "read names of principals", func(b *pgx.Batch) {
		b.Queue(namesOf, keys).Query(func(rows pgx.Rows) error {
			var key int64
			var name string
			_, err := pgx.ForEachRow(rows, []any{&key, &name}, func() error {
				names[nonce.Principal(key)] = name
				return nil
			})
			return err
		})
	})
}
