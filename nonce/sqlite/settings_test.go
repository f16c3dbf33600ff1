package sqlite

import (
	"path/filepath"
	"testing"
)

func TestEveryConnectionWritesDurably(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), 0, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := <-s.writer
	defer func() { s.writer <- w }()
	r := <-s.reader
	defer func() { s.reader <- r }()
	for _, c := range []*session{w, r} {
		for pragma, want := range map[string]string{
			"journal_mode": "wal", "synchronous": "2", "fullfsync": "1", "checkpoint_fullfsync": "1", "busy_timeout": "2000",
		} {
			var got string
			if _, err := c.one(t.Context(), []any{&got}, "PRAGMA "+pragma); err != nil || got != want {
				t.Errorf("%s: got %q, %v, want %q", pragma, got, err, want)
			}
		}
	}
}
