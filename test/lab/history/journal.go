package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Finished reads the journal of a campaign: what Finish wrote for each run that is over, a
// line of JSON. Without a file there is none.
func Finished[T any](path string) ([]T, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what is finished: %w", err)
	}
	var all []T
	for line := range strings.Lines(string(text)) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return nil, fmt.Errorf("read what is finished: %s: %w", path, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Finish adds a run to the journal of a campaign, which is made if there is none.
func Finish(path string, run any) error {
	line, err := json.Marshal(run)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("note what is finished: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
