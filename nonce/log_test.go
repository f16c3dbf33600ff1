package nonce_test

import (
	"errors"
	"reflect"
	"testing"

	"noncegate/nonce"
)

// TestAChangeIsAppliedToTheVersionBeforeItOnly: what is between is lost, and what is there is not
// applied again.
func TestAChangeIsAppliedToTheVersionBeforeItOnly(t *testing.T) {
	before := nonce.Signer{Version: 4, Next: 3, Floor: 1, Live: []nonce.Entry{
		{Nonce: 1, Attempt: 1, Status: nonce.Held, Until: 5}, {Nonce: 2, Attempt: 2, Status: nonce.Released},
	}}
	after := nonce.Signer{Version: 5, Next: 4, Floor: 1, Live: []nonce.Entry{
		{Nonce: 2, Attempt: 3, Status: nonce.Held, Until: 9}, {Nonce: 3, Attempt: 1, Status: nonce.Held, Until: 9},
	}}
	change := nonce.ChangeOf("s", &before, &after)

	row := before
	if applied, err := change.Apply(&row); !applied || err != nil || !reflect.DeepEqual(row, after) {
		t.Errorf("got %v, %v, %+v, want %+v", applied, err, row, after)
	}
	if applied, err := change.Apply(&row); applied || err != nil || !reflect.DeepEqual(row, after) {
		t.Errorf("a second time: %v, %v, %+v", applied, err, row)
	}
	for name, spoil := range map[string]func(*nonce.Signer){
		"a version is missing": func(s *nonce.Signer) { s.Version-- },
		"the cursor falls":     func(s *nonce.Signer) { s.Next = 5 },
		"the floor falls":      func(s *nonce.Signer) { s.Floor = 2 },
	} {
		row := before
		spoil(&row)
		was := row
		if applied, err := change.Apply(&row); applied || !errors.Is(err, nonce.ErrLogGap) || !reflect.DeepEqual(row, was) {
			t.Errorf("%s: %v, %v, %+v", name, applied, err, row)
		}
	}
}
