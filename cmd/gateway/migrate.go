package main

import (
	"context"
	"log/slog"
)

// migrateCmd takes the settings of serve that concern the store, so that both
// can be given the same file.
type migrateCmd struct {
	File string `name:"config" placeholder:"FILE" help:"YAML file with settings, the same as for serve. Others than these are left alone."`
	StoreConfig
	LogConfig
}

// Run implements the command.
func (c *migrateCmd) Run(ctx context.Context, p *program) error {
	return p.migrate(ctx, &c.StoreConfig, c.Logger(p.stderr))
}

// migrate brings the schema up to date, which is what opening a store does, and
// leaves.
func migrate(ctx context.Context, cfg *StoreConfig, log *slog.Logger) error {
	store, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	said := []any{"engine", store.Name()}
	if s, ok := store.(interface{ DatabaseID() string }); ok {
		said = append(said, "database", s.DatabaseID()) // part of the keys in Redis
	}
	log.Info("the schema is up to date", said...)
	return store.Close()
}
