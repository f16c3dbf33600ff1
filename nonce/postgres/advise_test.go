package postgres_test

import (
	"slices"
	"testing"
	"time"

	"noncegate/nonce/postgres"
)

func TestSettingsByWhichCommitsMayBeLostAreTold(t *testing.T) {
	for _, c := range []struct {
		settings                      map[string]string
		replicas, synchronous, hidden int
		want                          []string
	}{
		{map[string]string{"full_page_writes": "on", "autovacuum": "on", "data_checksums": "on", "archive_mode": "on"}, 0, 0, 0, nil},
		{map[string]string{"full_page_writes": "off", "autovacuum": "off", "data_checksums": "off", "archive_mode": "off"}, 0, 0, 0,
			[]string{"postgres-pages", "postgres-vacuum", "postgres-checksums", "postgres-alone"}},
		{map[string]string{"archive_mode": "on"}, 2, 0, 0, []string{"postgres-asynchronous"}},
		{map[string]string{"archive_mode": "on"}, 2, 1, 0, nil},
		{map[string]string{"archive_mode": "on"}, 2, 0, 2, nil}, // this role may not see it
		{map[string]string{"archive_mode": "on", "synchronous_standby_names": "*"}, 0, 0, 0, []string{"postgres-standby-away"}},
	} {
		var got []string
		for _, a := range postgres.OfDurability(c.settings, c.replicas, c.synchronous, c.hidden) {
			got = append(got, a.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v with %d replicas: %v, want %v", c.settings, c.replicas, got, c.want)
		}
	}
}

func TestAClockIsApartOnlyOutsideOfTheTimeItTookToReadIt(t *testing.T) {
	began := time.UnixMilli(1_000_000)
	ended := began.Add(2 * time.Second)
	for read, want := range map[int64]time.Duration{1_000_000: 0, 1_002_000: 0, 999_000: time.Second, 1_005_000: 3 * time.Second} {
		if got := postgres.Apart(read, began, ended); got != want {
			t.Errorf("%d: %v, want %v", read, got, want)
		}
	}
}
