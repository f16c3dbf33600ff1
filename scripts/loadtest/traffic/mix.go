package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Method is one of the methods that a load is mixed of.
type Method uint8

// The methods of a Mix.
const (
	Allocate Method = iota
	MarkUsed
	MarkRecyclable
	Status
	methodCount
)

// String is the method's word in a mix and in results.
func (m Method) String() string {
	return [methodCount]string{"allocate", "markUsed", "markRecyclable", "status"}[m]
}

// Mix is the share of each method, in any unit. Marks are of nonces that the
// same connection was handed out before; while there is none to mark, an
// allocate is sent in its place, so that the shares of a run may differ.
type Mix struct {
	Allocate, MarkUsed, MarkRecyclable, Status float64
	// Pairs is in place of shares: a connection marks as used everything that it was
	// handed out before it allocates more. In a closed loop each burst of allocations is
	// followed by the burst of their marks; nothing is marked for an allocation that
	// failed.
	Pairs bool
}

// pairs is the word for Mix.Pairs.
const pairs = "pairs"

// ParseMix reads a mix such as "allocate=6,markUsed=3,markRecyclable=1", or "pairs".
func ParseMix(text string) (Mix, error) {
	var m Mix
	if text == pairs {
		return Mix{Pairs: true}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, share, ok := strings.Cut(part, "=")
		f := m.share(strings.TrimSpace(name))
		if !ok || f == nil {
			return Mix{}, fmt.Errorf("%q is not a share of allocate, markUsed, markRecyclable or status, such as allocate=6; in place of shares there may be the word pairs", part)
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil {
			return Mix{}, fmt.Errorf("the share in %q is not a number", part)
		}
		*f = value
	}
	if m.sum() == 0 || !m.valid() {
		return Mix{}, fmt.Errorf("%q must have shares that are not negative and a share of allocate above 0", text)
	}
	return m, nil
}

// UnmarshalText implements encoding.TextUnmarshaler by ParseMix.
func (m *Mix) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMix(string(text))
	return err
}

func (m *Mix) share(name string) *float64 {
	switch name {
	case Allocate.String():
		return &m.Allocate
	case MarkUsed.String():
		return &m.MarkUsed
	case MarkRecyclable.String():
		return &m.MarkRecyclable
	case Status.String():
		return &m.Status
	}
	return nil
}

func (m Mix) sum() float64 { return m.Allocate + m.MarkUsed + m.MarkRecyclable + m.Status }

// valid reports whether a load can be made of it. Without allocates there would
// be nothing to mark.
func (m Mix) valid() bool {
	if m == (Mix{}) || m == (Mix{Pairs: true}) {
		return true
	}
	return !m.Pairs && m.Allocate > 0 && m.MarkUsed >= 0 && m.MarkRecyclable >= 0 && m.Status >= 0 && !math.IsInf(m.sum(), 0)
}

// allocatesOnly reports whether nothing else is sent.
func (m Mix) allocatesOnly() bool { return !m.Pairs && m.sum() == m.Allocate }

// shares is the mix as results show it, in parts of one.
func (m Mix) shares() map[string]float64 {
	if m.Pairs {
		m = Mix{Allocate: 1, MarkUsed: 1}
	}
	if m.allocatesOnly() {
		return map[string]float64{Allocate.String(): 1}
	}
	shares := make(map[string]float64)
	for method := range methodCount {
		if part := *m.share(method.String()); part > 0 {
			shares[method.String()] = part / m.sum()
		}
	}
	return shares
}

// pick chooses a method, at random by its share. In pairs it is a mark, in whose place an
// allocate is sent while there is none.
func (m *Mix) pick(rng *rand.Rand) Method {
	if m.Pairs {
		return MarkUsed
	}
	at := rng.Float64() * m.sum()
	switch {
	case at < m.Allocate:
		return Allocate
	case at < m.Allocate+m.MarkUsed:
		return MarkUsed
	case at < m.Allocate+m.MarkUsed+m.MarkRecyclable:
		return MarkRecyclable
	}
	return Status
}
