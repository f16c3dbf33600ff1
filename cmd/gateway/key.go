package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"noncegate/internal/access/apikey"
	"noncegate/internal/access/rights"
	"noncegate/internal/admin"
	"noncegate/nonce"
	"noncegate/nonce/sqlite"
	"noncegate/wire"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make an API key for a principal and print it: the only time that it is shown."`
	List   keyListCmd   `cmd:"" help:"List the API keys: id, principal, and whether they are live."`
	Revoke keyRevokeCmd `cmd:"" help:"End an API key, and within a few seconds the connections it let in."`
}

// keyStoreCmd is what the commands share. They take the settings of serve that concern
// the store, so that all can be given the same file.
type keyStoreCmd struct {
	File string `name:"config" placeholder:"FILE" help:"YAML file with settings, the same as for serve. Others than these are left alone."`
	StoreConfig
	LogConfig
	JSON bool `name:"json" help:"Print JSON, in one line."`
}

// keyStore is what a command needs of a store.
type keyStore interface {
	apikey.Store
	Close() error
}

// open opens the store. A SQLite file that a gateway has is opened beside it. Only a
// command that makes something makes the file.
func (c *keyStoreCmd) open(ctx context.Context, log *slog.Logger, makes bool) (keyStore, error) {
	path, embedded := c.SQLitePath()
	if embedded && !makes {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, settingErrorf("store", "sqlite file %q does not exist", path)
		}
	}
	s, err := openStore(ctx, &c.StoreConfig, log)
	if embedded && errors.Is(err, sqlite.ErrInUse) {
		return sqlite.OpenBeside(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	keys, ok := s.(keyStore)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the store %s keeps no API keys", s.Name()), s.Close())
	}
	return keys, nil
}

// with runs fn on the store.
func (c *keyStoreCmd) with(ctx context.Context, p *program, makes bool, fn func(keyStore) error) error {
	s, err := c.open(ctx, c.Logger(p.stderr), makes)
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}

// unknownKey says so where it is unknown whether a change was made.
func unknownKey(err error, what, id string) error {
	if se, ok := errors.AsType[*nonce.StoreError](err); ok && se.Outcome == nonce.Unknown {
		return fmt.Errorf("nobody knows whether the API key %s was %s; gateway key list tells: %w", id, what, err)
	}
	return err
}

func printJSON[T any](w io.Writer, v T) error {
	line, err := wire.Marshal(&v)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}

type keyCreateCmd struct {
	Principal string        `arg:"" help:"Who the key is for, by the name in the rights file. Each may have two live keys."`
	Expires   time.Duration `default:"0s" help:"How long the key is good, such as 2160h. 0: until it is revoked."`
	Rights    string        `placeholder:"FILE" help:"The rights file of serve: a warning tells of a principal that has no rights there."`
	keyStoreCmd
}

// Validate reports the first argument that cannot be used.
func (c *keyCreateCmd) Validate() error {
	if err := rights.CheckPrincipal(c.Principal); err != nil {
		return fmt.Errorf("principal %q %w", c.Principal, err)
	}
	switch {
	case c.Expires < 0:
		return settingErrorf("expires", "%v must be above 0, and at least 1m; leave it out for a key that is good until it is revoked", c.Expires)
	case c.Expires != 0 && c.Expires < time.Minute || c.Expires > admin.MaxKeyLifetime:
		return settingErrorf("expires", "%v must be 1m to %v, or 0", c.Expires, admin.MaxKeyLifetime)
	}
	return c.keyStoreCmd.Validate()
}

// Run implements the command. The key alone goes to standard output, so that a script
// can take it from there.
func (c *keyCreateCmd) Run(ctx context.Context, p *program) error {
	text, request := apikey.Generate(c.Principal, c.Expires)
	var made apikey.Key
	err := c.with(ctx, p, true, func(s keyStore) (err error) {
		made, err = s.CreateKey(ctx, request)
		return unknownKey(err, "made", request.ID)
	})
	if err != nil {
		return err
	}
	c.warn(p.stderr)
	v := admin.ViewKey(made, made.Created)
	if c.JSON {
		v.Key = text
		return printJSON(p.stdout, v)
	}
	fmt.Fprintf(p.stderr, "API key %s of %s, %s. It is shown this once; the store has its SHA-256 only.\n",
		v.ID, v.Principal, until(v.ExpiresAt))
	_, err = fmt.Fprintln(p.stdout, text)
	return err
}

// warn says where the rights file gives the principal nothing.
func (c *keyCreateCmd) warn(w io.Writer) {
	if c.Rights == "" {
		return
	}
	r, err := rights.ReadFile(c.Rights)
	switch {
	case err != nil:
		fmt.Fprintf(w, "warning: it is not known what %s may do: %v\n", c.Principal, err)
	case !r.Knows(c.Principal):
		fmt.Fprintf(w, "warning: %s is not among the principals of %s: the key lets nobody in before it is\n", c.Principal, c.Rights)
	case !r.MayAnything(c.Principal):
		fmt.Fprintf(w, "warning: %s has no rights in %s: the key lets in, and nothing more\n", c.Principal, c.Rights)
	}
}

func until(t *wire.Time) string {
	if t == nil {
		return "until it is revoked"
	}
	return "until " + t.String()
}

type keyListCmd struct {
	keyStoreCmd
}

// Run implements the command.
func (c *keyListCmd) Run(ctx context.Context, p *program) error {
	views := []admin.KeyView{}
	err := c.with(ctx, p, false, func(s keyStore) error {
		all, err := s.Keys(ctx, 0)
		for _, k := range all.Keys {
			views = append(views, admin.ViewKey(k, all.Now))
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p.stdout, views)
	}
	return list(p.stdout, "ID\tPRINCIPAL\tSTATE\tCREATED\tEXPIRES\tREVOKED", views, func(v *admin.KeyView) []any {
		return []any{v.ID, v.Principal, v.State, v.CreatedAt, v.ExpiresAt, v.RevokedAt}
	}).Flush()
}

type keyRevokeCmd struct {
	KeyID string `arg:"" name:"keyid" help:"The id of the key, as key list shows it: not the key."`
	keyStoreCmd
}

// Validate reports the first argument that cannot be used.
func (c *keyRevokeCmd) Validate() error {
	if !apikey.IsID(c.KeyID) { // it may be the key, which is not to be repeated
		return errors.New("that is not the id of an API key; gateway key list shows them, of 16 characters each")
	}
	return c.keyStoreCmd.Validate()
}

// Run implements the command.
func (c *keyRevokeCmd) Run(ctx context.Context, p *program) error {
	var revoked apikey.Key
	err := c.with(ctx, p, false, func(s keyStore) (err error) {
		revoked, err = s.RevokeKey(ctx, c.KeyID)
		return unknownKey(err, "revoked", c.KeyID)
	})
	if errors.Is(err, apikey.ErrUnknown) {
		return fmt.Errorf("%w: %s", apikey.ErrUnknown, c.KeyID)
	}
	if err != nil {
		return err
	}
	v := admin.ViewKey(revoked, revoked.Revoked)
	if c.JSON {
		return printJSON(p.stdout, v)
	}
	_, err = fmt.Fprintf(p.stdout, "API key %s of %s was revoked at %s\n", v.ID, v.Principal, v.RevokedAt)
	return err
}
