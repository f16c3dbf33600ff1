package service_test

import "testing"

func TestALowerMaxHoldsDoesNotLockWhatIsReleased(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a", maxHolds(4))
	n.want("allocate count=4 -> 0#1 1#1 2#1 3#1", "release 0#1 -> RELEASED", "release 1#1 -> RELEASED", "used 2#1 -> CONSUMED", "used 3#1 -> CONSUMED")
	n.Stop()
	m := start(t, d, "b", maxHolds(1))
	m.want("allocate -> 0#2")
}
