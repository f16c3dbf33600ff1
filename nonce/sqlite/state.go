package sqlite

import (
	"time"
)

// timeOf is the time of a column, where 0 is none.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
