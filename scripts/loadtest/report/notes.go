package report

import (
	"fmt"
	"strings"

	"noncegate/scripts/loadtest/result"
)

// expiredShare is how many holds, as a share of the acknowledged requests, may
// expire in a run before that is worth a note.
const expiredShare = 0.01

// notes are what to know of a run before its figures are believed.
func notes(run *result.Run) []string {
	expired := Moved(run, "noncegate_holds_expired_total")
	if expired == 0 || expired <= expiredShare*float64(run.Acknowledged) {
		return nil
	}
	told := number(expired) + " holds expired meanwhile"
	if run.Acknowledged > 0 {
		told += fmt.Sprintf(", %s of the acknowledged requests", percent(expired/float64(run.Acknowledged)))
	}
	return []string{told + ": holds of an earlier load, or of this one once it had lasted longer than a hold (60 s). " +
		"To end them is work that counts in these figures. Wait a minute between runs, or give each a fresh store."}
}

// Moved is by how much a counter moved, whatever its labels, at all gateways.
func Moved(run *result.Run, name string) (by float64) {
	for _, n := range run.Nodes {
		for counter, grown := range n.Counters {
			if counter == name || strings.HasPrefix(counter, name+"{") {
				by += grown
			}
		}
	}
	return by
}
