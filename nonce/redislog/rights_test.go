package redislog

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
	"noncegate/test/lab/redistest"
)

// rights are the commands that the logs need. docs/engine.md names them, with those for events
// and the guard.
var rights = strings.Fields("info get set del eval evalsha xadd xrange xtrim")

// TestAUserNeedsTheRightsThatAreWrittenDownAndNoOther does everything that is done with logs as
// a user with those, and then without each.
func TestAUserNeedsTheRightsThatAreWrittenDownAndNoOther(t *testing.T) {
	s, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	admin := s.Client(t)
	allow(t, admin, rights)
	l := open(t, asUser(t, s.URL()), "db")
	token := int64(0)
	if err := everything(t, l, &token); err != nil {
		t.Fatal(err)
	}
	for i, without := range rights {
		allow(t, admin, slices.Concat(rights[:i], rights[i+1:]))
		admin.ScriptFlush(t.Context()) // so that the next is EVAL
		err := everything(t, l, &token)
		if _, openErr := Open(t.Context(), l.redis, "db"); cmp.Or(err, openErr) == nil {
			t.Errorf("without %s nothing is refused", without)
		} else if said := cmp.Or(err, openErr).Error(); !strings.Contains(said, "NOPERM") && !strings.Contains(said, "can't run this command") {
			t.Errorf("without %s: %v", without, err)
		}
	}
	doc, err := os.ReadFile("../../docs/engine.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rights {
		if !strings.Contains(string(doc), "+"+r+" ") {
			t.Errorf("docs/engine.md does not name +%s", r)
		}
	}
}

// allow gives the user so many rights, and no other.
func allow(t *testing.T, admin *redis.Client, rights []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "gateway", "reset", "on", ">secret", "~noncegate:logs-of", "~noncegate:{db/*"}
	for _, r := range rights {
		args = append(args, "+"+r)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// asUser is a URL with the user.
func asUser(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("gateway", "secret")
	return u.String()
}

// everything is one of each call.
func everything(t *testing.T, l *Log, token *int64) error {
	*token += 2
	f, err := l.Begin(t.Context(), 0, *token-1)
	if err != nil {
		return err
	}
	if err := add(t, l, &f); err != nil {
		return err
	}
	if f, err = l.Raise(t.Context(), f); err != nil {
		return err
	}
	f, records, err := entered(t, l, f, *token, 0)
	if err != nil || len(records) != 1 {
		return cmp.Or(err, fmt.Errorf("got %v", records))
	}
	if _, _, err := l.Read(t.Context(), 0); err != nil {
		return err
	}
	if is, err := l.Identity(t.Context()); err != nil || is != f.Identity {
		return cmp.Or(err, fmt.Errorf("the server is %s", is))
	}
	return l.Trim(t.Context(), []nonce.LogFence{f})
}
