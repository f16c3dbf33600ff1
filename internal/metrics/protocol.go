package metrics

// BeatResult is what became of a heartbeat.
type BeatResult string

// The results of a heartbeat.
const (
	BeatAnswered BeatResult = "answered"
	BeatFailed   BeatResult = "failed" // the store did not answer, or not in time
)

var beatResults = []BeatResult{BeatAnswered, BeatFailed}

// Heartbeat counts a heartbeat, and notes whether the store is there.
func (s *Set) Heartbeat(result BeatResult) {
	s.heartbeats.Inc(result)
	s.StoreAway.Set(result == BeatFailed)
}
