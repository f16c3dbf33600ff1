package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/sqlite"
)

// serve runs a gateway until ctx ends, and then drains it.
func serve(ctx context.Context, cfg *Config, log *slog.Logger, stdout io.Writer) error {
	a, err := start(ctx, cfg, log)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, a.greeting())
	select {
	case <-ctx.Done():
		log.Info("draining", "timeout", cfg.DrainTimeout.String())
	case err = <-a.fatal:
		log.Error("stopping", "error", err)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	err = errors.Join(err, a.stop(drain))
	log.Info("stopped", "error", err)
	return err
}

// openStore opens the store that cfg names and migrates its schema. A Postgres
// that is away is waited for; what is wrong about it is not.
func openStore(ctx context.Context, cfg *StoreConfig, log *slog.Logger) (nonce.Store, error) {
	return openStoreFor(ctx, cfg, log, 0, nil)
}

// openStoreFor sizes the connection pool for so many requests at a time, and
// tells fatal of an error after which the process must end.
func openStoreFor(ctx context.Context, cfg *StoreConfig, log *slog.Logger, conns int, fatal func(error)) (nonce.Store, error) {
	if path, ok := cfg.SQLitePath(); ok {
		return sqlite.Open(ctx, path, sqlite.Config{Fatal: fatal})
	}
	waiting := false
	s, err := backoff.Retry(ctx, func() (*postgres.Store, error) {
		s, err := postgres.Open(ctx, cfg.Store, postgres.Config{MaxConns: conns, Log: log.With("component", "postgres")})
		switch {
		case err == nil:
			return s, nil
		case !postgres.Away(err):
			return nil, backoff.Permanent(err)
		case !waiting:
			waiting = true
			log.Warn("PostgreSQL is away; waiting for it", "for", cfg.StoreWait.String(), "error", err)
		}
		return nil, err
	}, backoff.WithMaxElapsedTime(max(cfg.StoreWait, time.Millisecond)), backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: 2 * time.Second,
	}))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("stopped while waiting for PostgreSQL: %w", context.Cause(ctx))
	case err != nil && postgres.Away(err):
		return nil, fmt.Errorf("PostgreSQL is away: %s", sentenceOf(err))
	case err != nil:
		return nil, settingErrorf("store", "cannot be used: %s", sentenceOf(err))
	}
	if _, err := s.Migrate(ctx); err != nil {
		err = fmt.Errorf("%s (a role that may not create tables needs gateway migrate to be run by one that may)", sentenceOf(err))
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// sentenceOf is an error on one line; the driver spreads some over several.
func sentenceOf(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
