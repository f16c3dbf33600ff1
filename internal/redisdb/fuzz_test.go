package redisdb

import (
	"strings"
	"testing"
	"time"
)

// FuzzParse: every address is taken, within bounds, or refused with a sentence that
// does not show the password.
func FuzzParse(f *testing.F) {
	for _, address := range []string{
		"redis://127.0.0.1:6379", "rediss://user:hidden-word@cache.internal:6379/2?read_timeout=2s&pool_size=8", "unix:///run/redis.sock?db=1",
		"redis+cluster://:hidden-word@a:1,b:2,[::1]:3?dial_timeout=1s", "rediss+cluster://a?skip_verify=true", "redis://h?max_retries=9", "redis://:%zz@h", "redis://",
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		one, err := parse(address)
		switch {
		case err != nil:
			if strings.Contains(err.Error(), "hidden-word") {
				t.Fatal(err)
			}
		case one == nil:
			t.Fatal("no options, and no error")
		default:
			bounded(t, one.MaxRetries, one.PoolSize, one.DialTimeout, one.ReadTimeout, one.WriteTimeout)
		}
	})
}

func bounded(t *testing.T, retries, pool int, times ...time.Duration) {
	if retries != -1 || pool < 1 || pool > maxPool {
		t.Fatalf("%d retries, %d connections", retries, pool)
	}
	for _, d := range times {
		if d < time.Millisecond || d > maxTimeout {
			t.Fatalf("a time of %v", d)
		}
	}
}

// FuzzInfo: no answer to INFO makes what reads it panic.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:ab12\r\n\r\nrole:master\r\nmaster_replid:cd34\r\nconnected_slaves:1\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nloading:0\r\n")
	f.Add("run_id:\nconnected_slaves:99999999999999999999\nredis_version:x.y")
	f.Add(":\r\n::")
	f.Fuzz(func(t *testing.T, text string) {
		s := parseInfo(text)
		if strings.ContainsAny(s.RunID+s.Version+s.Role, "\n") {
			t.Errorf("a value of several lines: %+v", s)
		}
		tooOld(s.Version)
	})
}
