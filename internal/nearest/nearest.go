// Package nearest finds the known word that a misspelled one most likely meant.
package nearest

import "github.com/agnivade/levenshtein"

// maxLen bounds the work for words that others send: a longer one is not looked for.
const maxLen = 64

// Word returns the word of known that is nearest to typed, the first of several. It
// returns "" where none is near: more than a third of the letters, and more than one, are
// different.
func Word(typed string, known []string) string {
	if len(typed) > maxLen {
		return ""
	}
	found, least := "", max(1, len(typed)/3)+1
	for _, word := range known {
		if d := levenshtein.ComputeDistance(typed, word); d < least {
			found, least = word, d
		}
	}
	return found
}
