package rights

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"noncegate/internal/reload"
)

// Config are the settings of a File.
type Config struct {
	// Every is how often the file is read, and so how soon a change counts. 0: 2s.
	Every time.Duration
	// Log is told of every file that comes into force, with its hash, and of every one
	// that cannot be used. It may be nil.
	Log *slog.Logger
}

// File is a rights file that is read again and again. Its methods may be called by any
// goroutine.
type File struct {
	path string
	log  *slog.Logger
	v    *reload.Value[Rights]
}

// ReadFile reads a file once. The error is a sentence that names the file.
func ReadFile(path string) (*Rights, error) {
	contents, err := reload.ReadFile(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("rights file %w", err)
	}
	r, err := Parse(contents)
	if err != nil {
		return nil, fmt.Errorf("rights file %s: %w", path, err)
	}
	return r, nil
}

// Open reads the file, which must be good, and goes on reading it until Stop. The
// error is a sentence that names the file.
func Open(ctx context.Context, path string, cfg Config) (*File, error) {
	f := &File{path: path, log: cfg.Log}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	rc := reload.Config{Name: "the rights file", Every: cmp.Or(cfg.Every, 2*time.Second), Log: f.log}
	var err error
	f.v, err = reload.Open(ctx, rc, reload.Files([]string{path}, maxBytes, f.parse))
	if err != nil {
		return nil, fmt.Errorf("rights file %w", err)
	}
	return f, nil
}

// Stop ends the reading. What was read stays in force.
func (f *File) Stop() { f.v.Stop() }

// Soon has the file read now. It does not wait for that.
func (f *File) Soon() { f.v.Soon() }

// Rights returns what is in force.
func (f *File) Rights() *Rights { return f.v.Get() }

// State returns when the rights in force were last found to be those of the file, and
// why those of the file are not in force: nil, they are.
func (f *File) State() (good time.Time, err error) { return f.v.State() }

// parse reads the text of the file and says that it is in force.
func (f *File) parse(contents [][]byte) (*Rights, error) {
	r, err := Parse(contents[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	principals, patterns := r.size()
	f.log.Info("rights are in force", "file", f.path, "sha256", r.hash, "principals", principals, "patterns", patterns)
	if free := r.unlimited(); len(free) > 0 {
		const shown = 10
		f.log.Warn("principals without a limit of requests a second or of connections; set requestsPerSecond and connections, for all in defaultQuota",
			"file", f.path, "number", len(free), "principals", free[:min(len(free), shown)])
	}
	return r, nil
}
