package nonce

import (
	"errors"
	"testing"
)

// TestWhoDoesNotSayWhatHappenedSaysUnknown: nothing happened is said on purpose only.
func TestWhoDoesNotSayWhatHappenedSaysUnknown(t *testing.T) {
	for _, err := range []error{errors.New("broken"), &StoreError{Err: errors.New("broken")}} {
		if got := OutcomeOf(err); got != Unknown {
			t.Errorf("%v: %v", err, got)
		}
	}
	if (&UnavailableError{}).Outcome != Unknown {
		t.Error("an UnavailableError without an outcome is not unknown")
	}
}
