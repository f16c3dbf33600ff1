package service_test

import (
	"errors"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

func refuseNew(c *service.Config) { c.Rules.NewSigners = nonce.RefuseNew }

func TestANewSignerIsRefusedWhereItMustBeMadeKnownFirst(t *testing.T) {
	for name, mode := range map[string]func(*service.Config){"worker": func(*service.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", mode, refuseNew)
			for _, line := range []string{"allocate", "allocate id=x", "allocate count=3", "send 0 hash=1 take"} {
				if err := n.Do(t.Context(), parse(t, line)); !errors.Is(err, nonce.ErrNewSigner) {
					t.Errorf("%s: got %v, want ErrNewSigner", line, err)
				}
			}
			n.want("allocate known id=x -> not_found", "used 0#1 -> not_found", "repair 0 -> not_found", "status -> next 0 floor 0 held 0 released 0 consumed 0",
				"floor 0 -> floor 0 next 0", "allocate id=x -> 0#1", "allocate -> 1#1", "floor 0 -> floor 0 next 2",
				"floor 7 signer=other -> floor 7 next 7", "allocate signer=other -> 7#1")
			if got := n.disk.summary(t, "other").Version; got != 2 {
				t.Errorf("version %d after a floor and an allocation", got)
			}
		})
	}
}

func TestAFloorMakesASignerKnownToWhatComesInTheSameBatch(t *testing.T) {
	n := start(t, newDisk(), "a", refuseNew, workers(1))
	n.want("floor 0 signer=plug -> floor 0 next 0")
	got := n.batch(parse(t, "floor 0"), parse(t, "allocate"), parse(t, "allocate"))
	if got[0] != "floor 0 next 0" || got[1] != "0#1" || got[2] != "1#1" {
		t.Errorf("got %q", got)
	}
}

func TestASignerThatIsThereStaysThereWhenNewOnesAreRefused(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	n.Stop()
	start(t, d, "b", refuseNew).want("allocate -> 1#1")
}

func TestTheHashesOfANonceAreToldNewestFirst(t *testing.T) {
	for name, mode := range map[string]func(*service.Config){"worker": func(*service.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			start(t, newDisk(), "a", mode).want("allocate -> 0#1", "signed 0#1 hash=1 -> HELD #1 1", "signed 0#1 hash=2 -> HELD #1 2 1",
				"signed 0#1 hash=3 -> HELD #1 3 2 1", "signed 0#1 hash=1 -> HELD #1 3 2 1", "used 0#1 hash=4 -> CONSUMED",
				"signed 0#1 hash=4 -> CONSUMED #1 4 3 2 1", "list -> 0#1=CONSUMED/4,1,2,3", "repair 0 -> 0#2 was #1 3/ 4 3 2 1")
		})
	}
}
