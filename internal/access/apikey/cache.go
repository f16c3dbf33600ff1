package apikey

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"time"

	"noncegate/internal/reload"
)

// gap is the least time between two readings for keys that are not known: short, for a
// key that was made a moment ago is to be let in, and each is one small read of the
// store, however many ask.
const gap = 100 * time.Millisecond

// Config are the settings of a Cache.
type Config struct {
	// Refresh is how often the store is asked whether keys changed. Shorter ends
	// revoked keys sooner, for one small read of the store each time. 0: 2s.
	Refresh time.Duration
	// Trust is how long known keys let clients in after the store last answered.
	// It also bounds how long a key that was revoked where this node's store cannot
	// be reached still opens connections here. 0: 5m.
	Trust time.Duration
	// Log is told when the store cannot be read. It may be nil.
	Log *slog.Logger
}

// Cache checks keys. Its methods may be called by any goroutine.
type Cache struct {
	store Store
	trust time.Duration
	all   *reload.Value[known]
}

// known is every key at one reading.
type known struct {
	generation int64
	ahead      time.Duration // of the store's clock before ours
	keys       map[string]Key
}

// at is the store's clock when ours shows now.
func (k *known) at(now time.Time) time.Time { return now.Add(k.ahead) }

// Open reads all keys, and goes on reading them until Stop.
func Open(ctx context.Context, store Store, cfg Config) (*Cache, error) {
	c := &Cache{store: store, trust: cmp.Or(cfg.Trust, 5*time.Minute)}
	refresh := cmp.Or(cfg.Refresh, 2*time.Second)
	if refresh < 0 || c.trust < refresh {
		return nil, fmt.Errorf("keys are read every %v and trusted for %v: the second must not be the shorter", refresh, c.trust)
	}
	var err error
	c.all, err = reload.Open(ctx, reload.Config{Name: "the table of API keys", Every: refresh, Gap: min(gap, refresh), Log: cfg.Log}, c.read)
	if err != nil {
		return nil, fmt.Errorf("read the API keys: %w", err)
	}
	return c, nil
}

// Stop ends the reading. Checks go on with what was read until Config.Trust is over.
func (c *Cache) Stop() { c.all.Stop() }

// Soon has the keys read now. It does not wait for that.
func (c *Cache) Soon() { c.all.Soon() }

func (c *Cache) read(ctx context.Context, old *known) (*known, error) {
	var generation int64
	if old != nil {
		generation = old.generation
	}
	began := time.Now()
	list, err := c.store.Keys(ctx, generation)
	if err != nil {
		return nil, err
	}
	read := &known{generation: list.Generation, ahead: list.Now.Sub(began)}
	if old != nil && list.Generation == old.generation {
		read.keys = old.keys
		return read, nil
	}
	read.keys = make(map[string]Key, len(list.Keys))
	for _, k := range list.Keys {
		read.keys[k.ID] = k
	}
	return read, nil
}

// Check returns the live key of a text. Its errors are those of this package. Times
// of the key it returns are those of our clock.
func (c *Cache) Check(ctx context.Context, text string) (Key, error) {
	id, hash, err := Parse(text)
	if err != nil {
		return Key{}, err
	}
	all, k, err := c.find(ctx, id)
	if err != nil {
		return Key{}, err
	}
	return c.proved(all, k, hash)
}

// proved returns the key if it is live and the secret is its own.
func (c *Cache) proved(all *known, k Key, hash Hash) (Key, error) {
	if subtle.ConstantTimeCompare(k.Hash[:], hash[:]) != 1 {
		return Key{}, ErrSecret
	}
	return c.live(all, k)
}

// CheckKnown is Check by what is known here, which costs the store nothing.
func (c *Cache) CheckKnown(text string) (Key, error) {
	id, hash, err := Parse(text)
	if err != nil {
		return Key{}, err
	}
	all := c.all.Get()
	k, ok := all.keys[id]
	if !ok {
		return Key{}, ErrUnknown
	}
	return c.proved(all, k, hash)
}

// Live returns the key of an id whose secret was checked elsewhere, like Check.
func (c *Cache) Live(ctx context.Context, id string) (Key, error) {
	all, k, err := c.find(ctx, id)
	if err != nil {
		return Key{}, err
	}
	return c.live(all, k)
}

// find looks a key up, in a new reading where the one in force does not have it.
func (c *Cache) find(ctx context.Context, id string) (*known, Key, error) {
	all := c.all.Get()
	if k, ok := all.keys[id]; ok {
		return all, k, nil
	}
	if err := c.all.Again(ctx); err != nil {
		return nil, Key{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	all = c.all.Get()
	if k, ok := all.keys[id]; ok {
		return all, k, nil
	}
	return nil, Key{}, ErrUnknown
}

func (c *Cache) live(all *known, k Key) (Key, error) {
	now := time.Now()
	if err := k.Ended(all.at(now)); err != nil {
		return Key{}, err
	}
	if good, _ := c.all.State(); now.Sub(good) > c.trust {
		return Key{}, fmt.Errorf("%w: the store has not answered for %v", ErrUnavailable, now.Sub(good).Round(time.Second))
	}
	k.Created = k.Created.Add(-all.ahead)
	if !k.Expires.IsZero() {
		k.Expires = k.Expires.Add(-all.ahead)
	}
	return k, nil
}

// Ended returns ErrExpired or ErrRevoked when the key of an id has ended at now, and
// nil while it has not. A key that is gone from the store was revoked. It does not
// block, and it does not end a key because the store is away: clients that are in stay in.
func (c *Cache) Ended(id string, now time.Time) error {
	all := c.all.Get()
	k, ok := all.keys[id]
	if !ok {
		return ErrRevoked
	}
	return k.Ended(all.at(now))
}
