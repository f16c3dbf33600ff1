package process

import (
	"errors"
	"strings"
)

// Split cuts a command line into its words as no shell would on every system:
// words are separated by spaces and tabs; what stands between two ' or two " is
// taken as it is, spaces too; nothing else has a meaning, so that a Windows path
// keeps its backslashes. A quote that is not closed is an error.
func Split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune // the one that is open
	begun := false // also by '', which is an empty word
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\t':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed in: " + line)
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("no command")
	}
	return words, nil
}
