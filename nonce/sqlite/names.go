package sqlite

import (
	"context"

	"noncegate/nonce"
)

// Names of principals, by primary key.
const (
	sqlRememberName = `INSERT INTO gateway_principal (principal, name) VALUES (?, ?) ON CONFLICT (principal) DO NOTHING`

	sqlNamesOf = `SELECT principal, name FROM gateway_principal WHERE principal IN (SELECT value FROM json_each(?))`
)

// RememberNames implements nonce.Names.
func (s *Store) RememberNames(ctx context.Context, names []string) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		for _, name := range names {
			if name == "" {
				continue
			}
			if _, err := c.exec(ctx, sqlRememberName, int64(nonce.PrincipalOf(name)), name); err != nil {
				return err
			}
		}
		return nil
	})
}

// NamesOf implements nonce.Names.
func (s *Store) NamesOf(ctx context.Context, of []nonce.Principal) (map[nonce.Principal]string, error) {
	keys := make([]int64, len(of))
	for i, p := range of {
		keys[i] = int64(p)
	}
	names := make(map[nonce.Principal]string, len(of))
	return names, s.read(ctx, func(ctx context.Context, c *session) error {
		return c.each(ctx, func(scan func(...any) error) error {
			var key int64
			var name string
			err := scan(&key, &name)
			names[nonce.Principal(key)] = name
			return err
		}, sqlNamesOf, listOf(keys))
	})
}
