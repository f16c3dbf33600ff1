package reload

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Files reads files, of at most maxBytes each, and has parse make the value of their
// contents, in the order of names, when these are others than those of the value in
// force. It compares the contents because tools replace files, links and whole
// directories, and neither times of change nor any notice of the operating system tells
// of all of these. An error of a file begins with its name.
func Files[T any](names []string, maxBytes int64, parse func(contents [][]byte) (*T, error)) Load[T] {
	var inForce [sha256.Size]byte
	return func(_ context.Context, old *T) (*T, error) {
		contents := make([][]byte, len(names))
		digest := sha256.New()
		for i, name := range names {
			data, err := ReadFile(name, maxBytes)
			if err != nil {
				return nil, err
			}
			contents[i] = data
			fmt.Fprintf(digest, "%d\n%s", len(data), data)
		}
		found := [sha256.Size]byte(digest.Sum(nil))
		if old != nil && found == inForce {
			return old, nil
		}
		value, err := parse(contents)
		if err == nil {
			inForce = found
		}
		return value, err
	}
}

// ReadFile reads a file of at most maxBytes. The error begins with its name and has no
// name of a system call.
func ReadFile(name string, maxBytes int64) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, fileError(name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a file", name)
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, maxBytes)
	}
	data, err := os.ReadFile(name) // #nosec G304 -- the file that the operator named
	if err != nil {
		return nil, fileError(name, err)
	}
	return data, nil
}

func fileError(name string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}
