package sqlite

// This file is no part of the gateway. Package torture builds a gateway
// with it (go build -overlay), as one more file of nonce/sqlite.
//
// It puts itself between SQLite and the file system. Everything that changes a database's files is written to a trace first, or
// after it in the case of a sync, so that the trace tells at any point what was on the disk for certain and what was only in the
// operating system's cache. It can also let the disk be full or fail.

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	traceVariable   = "TORTURE_DISK_TRACE"   // the file to append the trace to
	controlVariable = "TORTURE_DISK_CONTROL" // a file that says what the disk does: "room N" bytes in all, or "fail sync"
)

// tracer is what stands between. mu makes the trace tell the order of things as they were; reads do not take it.
type tracer struct {
	trace   *os.File
	control string
	vfs     sqlite3.Tsqlite3_vfs // the operating system's own, as it was
	openDir uintptr              // its openDirectory

	mu        sync.Mutex
	files     map[uintptr]string                      // paths of the open ones, by their place in memory
	methods   map[uintptr]sqlite3.Tsqlite3_io_methods // its tables of them as they were, by their place
	dirOpened bool                                    // since it was last cleared: a directory is about to be synced
}

var theTracer *tracer // SQLite calls functions, not methods

func init() {
	path := os.Getenv(traceVariable)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	tls := libc.NewTLS()
	vfs := sqlite3.Xsqlite3_vfs_find(tls, 0)
	t := &tracer{trace: f, control: os.Getenv(controlVariable), vfs: *vfsAt(vfs), files: map[uintptr]string{}, methods: map[uintptr]sqlite3.Tsqlite3_io_methods{}}
	theTracer = t
	vfsAt(vfs).FxOpen, vfsAt(vfs).FxDelete = pointer(traceOpen), pointer(traceDelete)
	// The operating system's VFS opens a directory for nothing else than to sync it.
	name, err := libc.CString("openDirectory")
	if err != nil {
		panic(err)
	}
	t.openDir = function[getFunc](t.vfs.FxGetSystemCall)(tls, vfs, name)
	if rc := function[setFunc](t.vfs.FxSetSystemCall)(tls, vfs, name, pointer(traceOpenDirectory)); rc != sqlite3.SQLITE_OK {
		panic(rc)
	}
}

func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&struct{ p uintptr }{p})) }

// at is what lies at an address of SQLite's own memory, which the collector does not know and does not move.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

func vfsAt(p uintptr) *sqlite3.Tsqlite3_vfs { return at[sqlite3.Tsqlite3_vfs](p) }

// recordLocked appends what happens to an open file.
func (t *tracer) recordLocked(kind byte, file uintptr, number int64, data []byte) {
	t.writeLocked(kind, filepath.Base(t.files[file]), number, data)
}

// writeLocked appends one event. A process that is killed while it does leaves a tail that is too short.
func (t *tracer) writeLocked(kind byte, name string, number int64, data []byte) {
	b := make([]byte, 0, 15+len(name)+len(data))
	b = binary.LittleEndian.AppendUint32(b, uint32(1+2+len(name)+8+len(data)))
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = append(b, name...)
	b = binary.LittleEndian.AppendUint64(b, uint64(number))
	if _, err := t.trace.Write(append(b, data...)); err != nil {
		panic(err)
	}
}

// says is what the control file says now.
func (t *tracer) says() string {
	if t.control == "" {
		return ""
	}
	text, _ := os.ReadFile(t.control) // it need not be there
	return strings.TrimSpace(string(text))
}

type (
	openFunc  = func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	pathFunc  = func(*libc.TLS, uintptr, uintptr, int32) int32
	writeFunc = func(*libc.TLS, uintptr, uintptr, int32, int64) int32
	sizeFunc  = func(*libc.TLS, uintptr, int64) int32
	flagFunc  = func(*libc.TLS, uintptr, int32) int32
	dirFunc   = func(*libc.TLS, uintptr, uintptr) int32
	setFunc   = func(*libc.TLS, uintptr, uintptr, uintptr) int32
	getFunc   = func(*libc.TLS, uintptr, uintptr) uintptr
)

func traceOpenDirectory(tls *libc.TLS, path, fd uintptr) int32 {
	theTracer.dirOpened = true // within traceSync or traceDelete, which hold mu
	return function[dirFunc](theTracer.openDir)(tls, path, fd)
}

func traceOpen(tls *libc.TLS, vfs, path, file uintptr, flags int32, out uintptr) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	rc := function[openFunc](t.vfs.FxOpen)(tls, vfs, path, file, flags, out)
	if rc != sqlite3.SQLITE_OK || path == 0 {
		return rc
	}
	t.files[file] = libc.GoString(path)
	t.recordLocked('o', file, 0, nil)
	table := at[sqlite3.Tsqlite3_file](file).FpMethods
	if _, known := t.methods[table]; !known {
		m := at[sqlite3.Tsqlite3_io_methods](table)
		t.methods[table] = *m
		m.FxWrite, m.FxTruncate, m.FxSync = pointer(traceWrite), pointer(traceTruncate), pointer(traceSync)
	}
	return rc
}

// belowLocked are the methods of a file as the operating system's VFS has them.
func (t *tracer) belowLocked(file uintptr) sqlite3.Tsqlite3_io_methods {
	return t.methods[at[sqlite3.Tsqlite3_file](file).FpMethods]
}

// roomLocked is how many of the n bytes at offset fit on the disk.
func (t *tracer) roomLocked(file uintptr, n int32, offset int64) int32 {
	text, ok := strings.CutPrefix(t.says(), "room ")
	if !ok {
		return n
	}
	room, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	growth := offset + int64(n)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(t.files[file]), "*"))
	for _, path := range files {
		info, gone := os.Stat(path)
		if gone != nil {
			continue
		}
		if room -= info.Size(); path == t.files[file] {
			growth -= info.Size()
		}
	}
	if err != nil {
		panic(err)
	}
	return n - int32(min(max(growth-max(room, 0), 0), int64(n)))
}

func traceWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	fits := t.roomLocked(file, n, offset)
	if fits > 0 {
		t.recordLocked('w', file, offset, unsafe.Slice(at[byte](data), fits))
		if rc := function[writeFunc](t.belowLocked(file).FxWrite)(tls, file, data, fits, offset); rc != sqlite3.SQLITE_OK {
			return rc
		}
	}
	if fits < n {
		return sqlite3.SQLITE_FULL
	}
	return sqlite3.SQLITE_OK
}

func traceTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordLocked('t', file, size, nil)
	return function[sizeFunc](t.belowLocked(file).FxTruncate)(tls, file, size)
}

func traceSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.says() == "fail sync" {
		t.recordLocked('f', file, 0, nil)
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	t.dirOpened = false
	rc := function[flagFunc](t.belowLocked(file).FxSync)(tls, file, flags)
	if rc == sqlite3.SQLITE_OK {
		t.recordLocked('s', file, 0, nil)
		t.syncedDirLocked()
	}
	return rc
}

func (t *tracer) syncedDirLocked() {
	if t.dirOpened {
		t.writeLocked('D', "", 0, nil)
	}
}

// tracedLog is a log that the store writes again by itself.
type tracedLog struct{ *os.File }

// WriteAt implements io.WriterAt.
func (f tracedLog) WriteAt(p []byte, at int64) (int, error) {
	if t := theTracer; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.writeLocked('w', filepath.Base(f.Name()), at, p)
	}
	return f.File.WriteAt(p, at)
}

// Sync syncs the log.
func (f tracedLog) Sync() error {
	t := theTracer
	if t == nil {
		return f.File.Sync()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := byte('s')
	err := f.File.Sync()
	if err == nil && t.says() == "fail sync" {
		kind, err = 'f', errors.New("disk I/O error")
	}
	t.writeLocked(kind, filepath.Base(f.Name()), 0, nil)
	return err
}

func traceDelete(tls *libc.TLS, vfs, path uintptr, dirSync int32) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirOpened = false
	name := filepath.Base(libc.GoString(path))
	rc := function[pathFunc](t.vfs.FxDelete)(tls, vfs, path, dirSync)
	if rc == sqlite3.SQLITE_OK {
		t.writeLocked('d', name, 0, nil)
		t.syncedDirLocked()
	}
	return rc
}
