package redisdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errAway is in the error of a Redis that did not answer, or cannot serve yet.
var errAway = errors.New("it is away")

// Check asks the server what it is. An error is a sentence about the first thing that is not as it must be.
func (db *DB) Check(ctx context.Context) (Server, error) {
	c := db.client
	addr := c.Options().Addr
	text, err := c.Info(ctx).Result()
	if err != nil {
		return Server{Addr: addr}, answer(addr, err)
	}
	s := parseInfo(text)
	s.Addr = addr
	if s.AOF { // a provider may refuse the question
		if got, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil {
			s.Fsync = got["appendfsync"]
		}
	}
	return s, s.judge()
}

// judge says which rule the server breaks.
func (s *Server) judge() error {
	switch {
	case tooOld(s.Version):
		return fmt.Errorf("%s is Redis %.20q: %s is the oldest version that is supported", s.Addr, s.Version, oldest)
	case s.Mode == "cluster":
		return fmt.Errorf("%s belongs to a Redis Cluster, which is not supported: it must be one server", s.Addr)
	case s.Mode == "sentinel":
		return fmt.Errorf("%s is a sentinel, which keeps no data: the address must be that of the server", s.Addr)
	case s.loading:
		return fmt.Errorf("%s still loads its data: %w", s.Addr, errAway)
	case s.Role != "master":
		return fmt.Errorf("%s is a read-only replica: the address must be that of the master", s.Addr)
	case s.Policy != "noeviction":
		return fmt.Errorf("%s has the maxmemory-policy %.30q and would lose holds by eviction: it must be noeviction", s.Addr, s.Policy)
	}
	return nil
}

// answer makes a sentence of an error. Whatever the server says of a password is
// left out, and so is what go-redis was configured with.
func answer(addr string, err error) error {
	var said redis.Error
	if !errors.As(err, &said) {
		return fmt.Errorf("%s does not answer (%w): %w", addr, err, errAway)
	}
	word, _, _ := strings.Cut(said.Error(), " ")
	switch {
	case word == "WRONGPASS", strings.Contains(said.Error(), "invalid password"), strings.Contains(said.Error(), "without any password configured"):
		return fmt.Errorf("%s refuses the user or password", addr)
	case word == "NOAUTH":
		return fmt.Errorf("%s wants a password, as in redis://:PASSWORD@HOST:PORT", addr)
	case word == "NOPERM":
		return fmt.Errorf("%s does not let this user run what is needed (%w)", addr, err)
	case word == "LOADING", word == "BUSY", word == "MASTERDOWN":
		return fmt.Errorf("%s cannot serve now (%w): %w", addr, err, errAway)
	}
	return fmt.Errorf("%s answers %w", addr, err)
}
