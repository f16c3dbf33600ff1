package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/nonce"
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

// A database that may not grow is what a full disk is to SQLite.
func TestAFullDiskNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.db")
	s, err := Open(t.Context(), path, 1, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := <-s.writer
	_, err = c.exec(t.Context(), "PRAGMA max_page_count = 1") // as many as there are
	s.writer <- c
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("%0120d", i))
	}
	err = s.RememberNames(t.Context(), names)
	if se, ok := errors.AsType[*nonce.StoreError](err); !ok || se.Outcome != nonce.Aborted || !strings.Contains(err.Error(), "there is no room on the disk of "+s.path+": ") {
		t.Errorf("got %v", err)
	}
}
