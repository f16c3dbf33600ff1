//go:build unix

package torture

import (
	"encoding/binary"
	"fmt"
	"os"
)

// The kinds of events in a trace, as testdata/tracingvfs.go writes them.
const (
	opened     = 'o' // a file was opened, and created if it was not there
	written    = 'w' // number: offset
	truncated  = 't' // number: length
	synced     = 's'
	syncFailed = 'f' // the disk failed, and what became of the writes is not known
	deleted    = 'd'
	dirSynced  = 'D'
	refused    = '!' // the disk was full
)

// event is one thing that happened to a file of the directory.
type event struct {
	kind   byte
	name   string
	number int64
	data   []byte
	end    int64 // the length of the trace with it
}

const traceHeader = 4

// readTrace reads the events of a trace. A last one that was not written to its end
// did not happen: its process was killed before.
func readTrace(path string) ([]event, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	var events []event
	for pos := 0; len(b)-pos >= traceHeader; {
		n := int(binary.LittleEndian.Uint32(b[pos:]))
		if n < 11 || n > 1<<26 {
			return nil, fmt.Errorf("read trace %s: an event of %d bytes at %d", path, n, pos)
		}
		pos += traceHeader
		if len(b)-pos < n {
			break
		}
		e := event{kind: b[pos], end: int64(pos + n)}
		rest := b[pos+1 : pos+n]
		name := int(binary.LittleEndian.Uint16(rest))
		e.name, rest = string(rest[2:2+name]), rest[2+name:]
		e.number, e.data = int64(binary.LittleEndian.Uint64(rest)), rest[8:]
		events = append(events, e)
		pos += n
	}
	return events, nil
}
