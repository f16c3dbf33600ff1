// Package rounds measures sides in alternation, so that what drifts on a machine
// favours none of them.
package rounds

import (
	"iter"
	"slices"
)

// Order is that of the sides of a round.
type Order int

// The orders.
const (
	Same         Order = iota // every round begins with the first side
	BackAndForth              // every second round goes backwards
)

// Alternate goes through all sides, by number, in each of some rounds.
func Alternate(rounds, sides int, order Order) iter.Seq2[int, int] {
	return func(yield func(round, side int) bool) {
		for round := range rounds {
			for side := range sides {
				if order == BackAndForth && round%2 == 1 {
					side = sides - 1 - side
				}
				if !yield(round, side) {
					return
				}
			}
		}
	}
}

// Median is the middle of values, the mean of the middle two, or 0 of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
