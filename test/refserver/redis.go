package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/wire"
)

// What is before the signer in the names of its counter, and of the hash that has the
// transaction hash of each nonce that was marked used.
const (
	redisKey  = "nonce:"
	redisUsed = "used:"
)

// redisIncr allocates by one INCR, and marks by one HSET. There are no holds to expire,
// to give back or to find again, and a mark is taken for whatever nonce it names.
type redisIncr struct{ client *redis.Client }

// newRedisIncr connects to the server at url. A command whose answer is lost may have run, so nothing is sent twice.
func newRedisIncr(ctx context.Context, url string) (*redisIncr, error) {
	if url == "" {
		return nil, errors.New("-redis says where Redis is, such as redis://127.0.0.1:6379/0")
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.PoolSize, options.MaxRetries = pool, -1
	client := redis.NewClient(options)
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &redisIncr{client: client}, nil
}

func (r *redisIncr) allocate(ctx context.Context, p wire.AllocateParams) (wire.AllocateResult, *wire.Error) {
	next, err := r.client.Incr(ctx, redisKey+p.Signer).Result()
	if err != nil {
		return wire.AllocateResult{}, unavailable(err)
	}
	held := wire.Time(time.Now().Add(holdFor))
	return wire.AllocateResult{Signer: p.Signer, Nonce: next - 1, Attempt: 1, HeldUntil: held, HoldMs: holdFor.Milliseconds()}, nil
}

func (r *redisIncr) markUsed(ctx context.Context, p wire.MarkUsedParams) (wire.MarkResult, *wire.Error) {
	if err := r.client.HSet(ctx, redisUsed+p.Signer, p.Nonce, p.TxHash).Err(); err != nil {
		return wire.MarkResult{}, unavailable(err)
	}
	return marked(p), nil
}

func (r *redisIncr) close() { r.client.Close() }
