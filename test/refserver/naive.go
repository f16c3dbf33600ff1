package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/wire"
)

const naiveSchema = `
CREATE TABLE IF NOT EXISTS naive_signer (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	signer     text   NOT NULL UNIQUE,
	next_nonce bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS naive_allocation (
	signer_id  bigint      NOT NULL,
	nonce      bigint      NOT NULL,
	status     smallint    NOT NULL,
	attempt    bigint      NOT NULL,
	held_until timestamptz NOT NULL,
	tx_hash    text,
	PRIMARY KEY (signer_id, nonce)
);`

// The statements of one allocation, in order, naiveAdd only for a new signer; of a mark naiveLock and naiveUsed.
const (
	naiveLock = `SELECT id, next_nonce FROM naive_signer WHERE signer = $1 FOR UPDATE`
	naiveAdd  = `INSERT INTO naive_signer (signer) VALUES ($1) ON CONFLICT DO NOTHING`
	naiveHold = `INSERT INTO naive_allocation (signer_id, nonce, status, attempt, held_until)
		VALUES ($1, $2, 1, 1, clock_timestamp() + $3) RETURNING held_until`
	naiveNext = `UPDATE naive_signer SET next_nonce = $2 WHERE id = $1`
	naiveUsed = `UPDATE naive_allocation SET status = 3, tx_hash = $4 WHERE signer_id = $1 AND nonce = $2 AND attempt = $3`
)

// naive answers each request by one transaction that locks the signer's row.
type naive struct{ pool *pgxpool.Pool }

func newNaive(ctx context.Context, url string) (*naive, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = pool, pool
	all, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := all.Exec(ctx, naiveSchema); err != nil {
		all.Close()
		return nil, err
	}
	return &naive{pool: all}, nil
}

func (n *naive) allocate(ctx context.Context, p wire.AllocateParams) (wire.AllocateResult, *wire.Error) {
	result := wire.AllocateResult{Signer: p.Signer, Attempt: 1, HoldMs: holdFor.Milliseconds()}
	err := pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		id, next, err := lockSigner(ctx, tx, p.Signer)
		if err != nil {
			return err
		}
		var heldUntil time.Time
		if err := tx.QueryRow(ctx, naiveHold, id, next, holdFor).Scan(&heldUntil); err != nil {
			return err
		}
		result.Nonce, result.HeldUntil = next, wire.Time(heldUntil)
		_, err = tx.Exec(ctx, naiveNext, id, next+1)
		return err
	})
	if err != nil {
		return result, unavailable(err)
	}
	return result, nil
}

func (n *naive) markUsed(ctx context.Context, p wire.MarkUsedParams) (wire.MarkResult, *wire.Error) {
	err := pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		var id, next int64
		if err := tx.QueryRow(ctx, naiveLock, p.Signer).Scan(&id, &next); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, naiveUsed, id, p.Nonce, p.Attempt, p.TxHash)
		if err == nil && done.RowsAffected() == 0 {
			err = pgx.ErrNoRows
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return wire.MarkResult{}, wire.Errorf(wire.CodeNotFound, "nonce %d of %s was not handed out with attempt %d", p.Nonce, p.Signer, p.Attempt)
	case err != nil:
		return wire.MarkResult{}, unavailable(err)
	}
	return marked(p), nil
}

func (n *naive) close() { n.pool.Close() }

// lockSigner locks the signer's row, made first where it is missing.
func lockSigner(ctx context.Context, tx pgx.Tx, signer string) (id, next int64, err error) {
	err = tx.QueryRow(ctx, naiveLock, signer).Scan(&id, &next)
	if errors.Is(err, pgx.ErrNoRows) {
		if _, err = tx.Exec(ctx, naiveAdd, signer); err == nil {
			err = tx.QueryRow(ctx, naiveLock, signer).Scan(&id, &next)
		}
	}
	return id, next, err
}
