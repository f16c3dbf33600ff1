package traffic

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"noncegate/scripts/loadtest/verify"
)

// Signers are Count accounts with numbers from Base on; see verify.Signer for
// their names. One of them is a hot signer.
type Signers struct {
	Base  int64
	Count int
	// Accounts are their numbers less Base, ascending, as many as Count; nil: 0 to
	// Count-1.
	Accounts []int64
	// Zipf, above 1, gives the k-th account a chance that falls with k to that
	// power; 0 gives all the same.
	Zipf float64
}

// Name is the i-th signer on the wire, i from 0.
func (s Signers) Name(i int) string { return verify.Signer(s.number(int64(i))) }

// number is that of the i-th account.
func (s *Signers) number(i int64) int64 {
	if s.Accounts != nil {
		i = s.Accounts[i]
	}
	return s.Base + i
}

// has reports whether an account is one of them.
func (s Signers) has(account int64) bool {
	if s.Accounts != nil {
		_, found := slices.BinarySearch(s.Accounts, account-s.Base)
		return found
	}
	return account >= s.Base && account-s.Base < int64(s.Count)
}

// String tells how they are chosen.
func (s Signers) String() string {
	if s.Zipf == 0 {
		return "uniform"
	}
	return fmt.Sprintf("zipf %g", s.Zipf)
}

// chooser picks accounts at random. It belongs to one connection.
type chooser struct {
	Signers
	rng  *rand.Rand
	zipf *rand.Zipf // nil: uniform
}

func newChooser(s Signers, rng *rand.Rand) chooser {
	c := chooser{Signers: s, rng: rng}
	if s.Zipf != 0 {
		c.zipf = rand.NewZipf(rng, s.Zipf, 1, uint64(s.Count-1))
	}
	return c
}

func (c *chooser) next() int64 {
	if c.zipf != nil {
		return c.number(int64(c.zipf.Uint64()))
	}
	return c.number(c.rng.Int64N(int64(c.Count)))
}
