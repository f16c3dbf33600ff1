//go:build unix

package redisstore_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// figure reads a number from INFO.
func figure(t testing.TB, client redis.UniversalClient, section, name string) float64 {
	t.Helper()
	text, err := client.Info(testContext(t), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseFloat(value, 64)
	if !ok || err != nil {
		t.Fatalf("INFO %s has no %s: %v", section, name, err)
	}
	return n
}

// cpu is how many seconds the server has worked.
func cpu(t testing.TB, client redis.UniversalClient) float64 {
	return figure(t, client, "cpu", "used_cpu_user_main_thread") + figure(t, client, "cpu", "used_cpu_sys_main_thread")
}
