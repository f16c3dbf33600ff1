package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/sqlite"
)

// serve runs a gateway until ctx ends, and then drains it. SIGHUP has files read again
// and ends nothing, also while it starts and drains.
func serve(ctx context.Context, cfg *Config, log *slog.Logger, stdout io.Writer) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)
	a, err := start(ctx, cfg, log)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, a.greeting())
	err = a.untilTheEnd(ctx, again)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
	defer cancel()
	err = errors.Join(err, a.stop(drain))
	log.Info("stopped", "error", err)
	return err
}

// untilTheEnd waits until ctx ends, or something after which the process must end.
func (a *app) untilTheEnd(ctx context.Context, again <-chan os.Signal) error {
	for {
		select {
		case <-again:
			a.reload()
		case <-ctx.Done():
			a.log.Info("draining", "timeout", a.cfg.DrainTimeout.String())
			return nil
		case <-a.ended:
			a.log.Info("draining, because an operator wants it", "timeout", a.cfg.DrainTimeout.String())
			return nil
		case err := <-a.fatal:
			a.log.Error("stopping", "error", err)
			return err
		}
	}
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
		return sqlite.Open(ctx, path, cfg.Shards, sqlite.Config{Fatal: fatal})
	}
	waiting, began := false, time.Now()
	s, err := backoff.Retry(ctx, func() (nonce.Store, error) {
		s, err := postgres.Open(ctx, "", cfg.Shards, postgres.Config{URL: cfg.storeURL, MaxConns: conns, Log: log.With("component", "postgres")})
		switch {
		case err == nil:
			return s, nil
		case !postgres.Away(err), untrusted(err), noSuchHost(err) && time.Since(began) > lookupPatience:
			return nil, backoff.Permanent(err)
		case !waiting:
			waiting = true
			log.Warn("PostgreSQL is away; waiting for it", "for", cfg.StoreWait.String(), "error", connectSentence(err))
		}
		return nil, err
	}, backoff.WithMaxElapsedTime(max(cfg.StoreWait, time.Millisecond)), backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: 2 * time.Second,
	}))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("stopped while waiting for PostgreSQL: %w", context.Cause(ctx))
	case err != nil && postgres.Away(err) && !noSuchHost(err) && !untrusted(err):
		return nil, fmt.Errorf("PostgreSQL is away: %s", connectSentence(err))
	case schemaAtFault(err):
		return nil, migrateError(err)
	case err != nil:
		return nil, settingErrorf(cfg.setting(), "cannot be used: %s", connectSentence(err))
	}
	return s, nil
}

// mayNotMigrate is PostgreSQL's code where the role lacks a right.
const mayNotMigrate = "42501"

// migrateError is why the schema is not up to date, in one line.
func migrateError(err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == mayNotMigrate {
		return fmt.Errorf("%s (this role may not change the schema: run gateway migrate as one that may)", sentenceOf(err))
	}
	return errors.New(sentenceOf(err))
}

func schemaAtFault(err error) bool {
	_, ok := errors.AsType[*postgres.SchemaError](err)
	return ok
}

// lookupPatience is how long a host that does not exist is waited for: its name may
// still be on its way to the name servers, but most likely it is wrong.
const lookupPatience = 3 * time.Second

// noSuchHost reports whether no host of the URL exists.
func noSuchHost(err error) bool {
	missing, ok := errors.AsType[*net.DNSError](err)
	_, tried := errors.AsType[*net.OpError](err) // another one does
	return ok && missing.IsNotFound && !tried
}

// untrusted reports whether the server showed a certificate that is not trusted, which
// does not pass by waiting.
func untrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// connectSentence is why PostgreSQL cannot be used, in its own words if it had any.
// The driver lists each attempt, with TLS and without, to each address, and the last
// is the one that counts.
func connectSentence(err error) string {
	attempts, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return sentenceOf(err)
	}
	_, why, _ := strings.Cut(strings.TrimSpace(attempts.Error()), "`:")
	why = why[strings.LastIndex(why, "\n")+1:]
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		why = said.Error()
	}
	return fmt.Sprintf("%s (as user %q of database %q)", sentenceOf(errors.New(why)), attempts.Config.User, attempts.Config.Database)
}

// sentenceOf is an error on one line; the driver spreads some over several.
func sentenceOf(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
