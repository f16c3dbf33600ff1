package nonce

import "testing"

func TestWordsOfKindsStatesAndEvents(t *testing.T) {
	for got, want := range map[string]string{
		Held.String() + Released.String() + Consumed.String() + Status(9).String():                                             "HELDRELEASEDCONSUMEDStatus(9)",
		KindAllocate.String() + " " + KindMarkUsed.String() + " " + KindMarkRecyclable.String():                                "allocate mark_used mark_recyclable",
		KindSetFloor.String() + " " + KindStatus.String() + " " + KindList.String() + " " + Kind(99).String():                  "floor status list unknown",
		EventAllocated.String() + " " + EventUsed.String() + " " + EventReleased.String() + " " + EventType(99).String():       "allocated used released unknown event",
		EventExpired.String() + " " + EventFloor.String() + " " + NotSent.String() + " " + Aborted.String() + Unknown.String(): "expired floor not sent abortedunknown",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
