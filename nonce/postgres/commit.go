package postgres

import (
	"time"
)

// How long after a commit that had to be done twice the next ones are careful at
// once. Every batch would else be done twice because of one outsider, or one client
// that repeats its request ids.
const (
	leaveLocked = time.Second
)
