package sqlite

// This file is no part of the gateway. Package torture builds a gateway with it (go build -overlay), as one more file of nonce/sqlite.
//
// It stands between SQLite and the file system, and keeps beside each file of a database a twin that has what was certainly on the disk at
// any point: a sync brings to the twin what was written since the one before. It can also let the disk be full or fail.

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	safeVariable    = "TORTURE_DISK_SAFE"    // the folder of the twins
	controlVariable = "TORTURE_DISK_CONTROL" // a file that says what the disk does: "room N" bytes in all, or "fail sync"
)

// forgetful is what stands between. mu is held while files change; reads do not take it.
type forgetful struct {
	safe, control string
	vfs           sqlite3.Tsqlite3_vfs // the operating system's own, as it was

	mu      sync.Mutex
	files   map[uintptr]string                      // paths of the open ones, by their place in memory
	methods map[uintptr]sqlite3.Tsqlite3_io_methods // its tables of them as they were, by their place
	pending map[string][]change                     // what is not synced, by path
	deleted []string                                // files that may come back with a loss of power, for their folder is not synced since
}

// change is a write, or without data the cutting off at a length.
type change struct {
	data []byte
	at   int64
}

var theDisk *forgetful // SQLite calls functions, not methods; nil: nothing stands between

func init() {
	safe := os.Getenv(safeVariable)
	if safe == "" {
		return
	}
	vfs := at[sqlite3.Tsqlite3_vfs](sqlite3.Xsqlite3_vfs_find(libc.NewTLS(), 0))
	theDisk = &forgetful{
		safe: safe, control: os.Getenv(controlVariable), vfs: *vfs,
		files: map[uintptr]string{}, methods: map[uintptr]sqlite3.Tsqlite3_io_methods{}, pending: map[string][]change{},
	}
	vfs.FxOpen, vfs.FxDelete = pointer(openFile), pointer(deleteFile)
}

func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&struct{ p uintptr }{p})) }

// at is what lies at an address of SQLite's own memory, which the collector does not know and does not move.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

type (
	openFunc  = func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	pathFunc  = func(*libc.TLS, uintptr, uintptr, int32) int32
	writeFunc = func(*libc.TLS, uintptr, uintptr, int32, int64) int32
	sizeFunc  = func(*libc.TLS, uintptr, int64) int32
	flagFunc  = func(*libc.TLS, uintptr, int32) int32
)

// says reports whether the control file says a word now, and what stands behind it.
func (d *forgetful) says(word string) (rest string, yes bool) {
	text, _ := os.ReadFile(d.control) // it need not be there
	return strings.CutPrefix(strings.TrimSpace(string(text)), word)
}

// changedLocked notes what is not on the disk yet.
func (d *forgetful) changedLocked(path string, data []byte, at int64) {
	d.pending[path] = append(d.pending[path], change{bytes.Clone(data), at})
}

// twin is where that of a file is.
func (d *forgetful) twin(path string) string { return filepath.Join(d.safe, filepath.Base(path)) }

// syncedLocked brings what is pending to the twin, each part of it with a chance. Nothing is pending then: an operating system may count
// what it could not write as written and never try again. With a new file its folder is synced.
func (d *forgetful) syncedLocked(path string, chance float64) {
	twin, err := os.OpenFile(d.twin(path), os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		d.folderSyncedLocked()
		twin, err = os.Create(d.twin(path))
	}
	for _, c := range d.pending[path] {
		switch {
		case rand.Float64() >= chance:
		case c.data == nil:
			err = errors.Join(err, twin.Truncate(c.at))
		default:
			_, failed := twin.WriteAt(c.data, c.at)
			err = errors.Join(err, failed)
		}
	}
	if err = errors.Join(err, twin.Close()); err != nil {
		panic(err)
	}
	delete(d.pending, path)
}

func (d *forgetful) folderSyncedLocked() {
	for _, path := range d.deleted {
		_ = os.Remove(d.twin(path)) // it may never have been synced
	}
	d.deleted = nil
}

func openFile(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	rc := function[openFunc](d.vfs.FxOpen)(tls, vfs, name, file, flags, out)
	if rc != sqlite3.SQLITE_OK || name == 0 {
		return rc
	}
	path := libc.GoString(name)
	if i := slices.Index(d.deleted, path); i >= 0 { // made anew
		d.deleted = slices.Delete(d.deleted, i, i+1)
		d.changedLocked(path, nil, 0)
	}
	d.files[file] = path
	table := at[sqlite3.Tsqlite3_file](file).FpMethods
	if _, known := d.methods[table]; !known {
		m := at[sqlite3.Tsqlite3_io_methods](table)
		d.methods[table] = *m
		m.FxWrite, m.FxTruncate, m.FxSync = pointer(writeFile), pointer(truncateFile), pointer(syncFile)
	}
	return rc
}

// belowLocked are the methods of a file as the operating system's VFS has them.
func (d *forgetful) belowLocked(file uintptr) sqlite3.Tsqlite3_io_methods {
	return d.methods[at[sqlite3.Tsqlite3_file](file).FpMethods]
}

// roomLocked is how many of the n bytes at offset fit on the disk.
func (d *forgetful) roomLocked(path string, n int32, offset int64) int32 {
	text, bounded := d.says("room ")
	if !bounded {
		return n
	}
	room, err := strconv.ParseInt(text, 10, 64)
	files, wrong := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err = errors.Join(err, wrong); err != nil {
		panic(err)
	}
	growth := offset + int64(n)
	for _, other := range files {
		info, gone := os.Stat(other)
		if gone != nil {
			continue
		}
		if room -= info.Size(); other == path {
			growth -= info.Size()
		}
	}
	return n - int32(min(max(growth-max(room, 0), 0), int64(n)))
}

func writeFile(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	path := d.files[file]
	fits := d.roomLocked(path, n, offset)
	if fits > 0 {
		d.changedLocked(path, unsafe.Slice(at[byte](data), fits), offset)
		if rc := function[writeFunc](d.belowLocked(file).FxWrite)(tls, file, data, fits, offset); rc != sqlite3.SQLITE_OK {
			return rc
		}
	}
	if fits < n {
		return sqlite3.SQLITE_FULL
	}
	return sqlite3.SQLITE_OK
}

func truncateFile(tls *libc.TLS, file uintptr, size int64) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changedLocked(d.files[file], nil, size)
	return function[sizeFunc](d.belowLocked(file).FxTruncate)(tls, file, size)
}

func syncFile(tls *libc.TLS, file uintptr, flags int32) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, fails := d.says("fail sync"); fails {
		d.syncedLocked(d.files[file], 0.5)
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	rc := function[flagFunc](d.belowLocked(file).FxSync)(tls, file, flags)
	if rc == sqlite3.SQLITE_OK {
		d.syncedLocked(d.files[file], 1)
	}
	return rc
}

func deleteFile(tls *libc.TLS, vfs, name uintptr, dirSync int32) int32 {
	d := theDisk
	d.mu.Lock()
	defer d.mu.Unlock()
	path := libc.GoString(name)
	rc := function[pathFunc](d.vfs.FxDelete)(tls, vfs, name, dirSync)
	if rc == sqlite3.SQLITE_OK {
		delete(d.pending, path)
		if d.deleted = append(d.deleted, path); dirSync != 0 {
			d.folderSyncedLocked()
		}
	}
	return rc
}

// forgetfulLog is a log that the store writes again by itself.
type forgetfulLog struct{ *os.File }

// WriteAt implements io.WriterAt.
func (f forgetfulLog) WriteAt(p []byte, at int64) (int, error) {
	if d := theDisk; d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.changedLocked(f.Name(), p, at)
	}
	return f.File.WriteAt(p, at)
}

// Sync syncs the log.
func (f forgetfulLog) Sync() error {
	err := f.File.Sync()
	if d := theDisk; d != nil && err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, fails := d.says("fail sync"); fails {
			d.syncedLocked(f.Name(), 0.5)
			return errors.New("disk I/O error")
		}
		d.syncedLocked(f.Name(), 1)
	}
	return err
}
