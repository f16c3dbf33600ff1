package service_test

import (
	"slices"
	"testing"

	"noncegate/lease"
	"noncegate/nonce/service"
)

// modes are the two that a service runs in.
var modes = map[string]func(*service.Config){"worker": func(*service.Config) {}, "basic": basicMode}

func TestWhatIsOnlyAskedIfKnownIsAnsweredAsTheFirstTimeAndHandsNothingOut(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			n := start(t, d, "a", mode, maxHolds(3))
			n.want("allocate known id=x -> not_found", "allocate count=2 id=x -> 0#1 1#1", "allocate -> 2#1")
			before := d.summary(t, signer)
			n.want("allocate known count=2 id=x -> 0#1 1#1", "allocate known id=x -> conflict 0#1=HELD 1#1=HELD", "allocate known id=y -> not_found")
			if after := d.summary(t, signer); after.Version != before.Version {
				t.Errorf("version %d after %d: something was written", after.Version, before.Version)
			}
			n.want("release 0#1 -> RELEASED", "allocate known count=2 id=x -> conflict 0#1=RELEASED 1#1=HELD", "allocate known id=y -> not_found")
			if got, want := d.rows(t, signer), "0#1=RELEASED 1#1=HELD 2#1=HELD"; got != want {
				t.Errorf("got rows %s, want %s", got, want)
			}
		})
	}
}

func TestInOneBatchWhatIsOnlyAskedIfKnownSeesWhatCameBeforeIt(t *testing.T) {
	n := start(t, newDisk(), "a")
	got := n.batch(parse(t, "allocate known id=x"), parse(t, "allocate known id=y"), parse(t, "allocate id=x"), parse(t, "allocate known id=x"), parse(t, "allocate"))
	if want := []string{"not_found", "not_found", "0#1", "0#1", "1#1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What a store that lost commits shows of a hold may be another's by now.
func TestWhatIsOnlyAskedIfKnownIsRefusedWhereTheStoreWentBack(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate id=x -> 0#1")
	then := d.Backup()
	n.want("release 0#1 -> RELEASED", "allocate -> 0#2")
	then()
	n.want("allocate known id=x -> none", "allocate -> none", "allocate known id=x -> none")

	for name, mode := range modes {
		halted := start(t, newDisk(), "b", mode)
		halted.want("allocate id=x -> 0#1")
		halted.Halt(lease.ErrWentBack)
		if got := halted.run("allocate known id=x"); got != "none" {
			t.Errorf("%s: a halted node answered %s", name, got)
		}
	}
}
