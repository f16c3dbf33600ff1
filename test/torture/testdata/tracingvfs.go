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
	below   sqlite3.Tsqlite3_vfs // the operating system's own
	openDir uintptr              // its openDirectory

	mu        sync.Mutex
	files     map[uintptr]*tracedFile // the open ones
	sizes     map[string]int64
	tables    map[uintptr]uintptr // our methods for each of its tables
	dirOpened bool                // since it was last cleared: a directory is about to be synced
}

// tracedFile is an open file.
type tracedFile struct {
	name  string
	below *sqlite3.Tsqlite3_io_methods // its methods as the operating system's VFS has them
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
	below := sqlite3.Xsqlite3_vfs_find(tls, 0)
	theTracer = &tracer{
		trace: f, control: os.Getenv(controlVariable), below: *vfsAt(below),
		files: map[uintptr]*tracedFile{}, sizes: map[string]int64{}, tables: map[uintptr]uintptr{},
	}
	theTracer.replaceOpenDirectory(tls, below)
	ours := sqlite3.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	*vfsAt(ours) = theTracer.below
	name, err := libc.CString("tracing")
	if err != nil {
		panic(err)
	}
	vfsAt(ours).FzName, vfsAt(ours).FpNext = name, 0
	vfsAt(ours).FxOpen, vfsAt(ours).FxDelete = pointer(traceOpen), pointer(traceDelete)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, ours, 1); rc != sqlite3.SQLITE_OK {
		panic(rc)
	}
}

func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&struct{ p uintptr }{p})) }

// at is what lies at an address of SQLite's own memory, which the collector does not know and does not move.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

func vfsAt(p uintptr) *sqlite3.Tsqlite3_vfs { return at[sqlite3.Tsqlite3_vfs](p) }

// record appends one event. A process that is killed while it does leaves a tail that is too short.
func (t *tracer) recordLocked(kind byte, name string, number int64, data []byte) {
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
	fileFunc  = func(*libc.TLS, uintptr) int32
	dirFunc   = func(*libc.TLS, uintptr, uintptr) int32
	setFunc   = func(*libc.TLS, uintptr, uintptr, uintptr) int32
	getFunc   = func(*libc.TLS, uintptr, uintptr) uintptr
)

// replaceOpenDirectory makes the operating system's VFS tell us when it syncs a directory: it opens one for nothing else.
func (t *tracer) replaceOpenDirectory(tls *libc.TLS, below uintptr) {
	name, err := libc.CString("openDirectory")
	if err != nil {
		panic(err)
	}
	t.openDir = function[getFunc](t.below.FxGetSystemCall)(tls, below, name)
	if rc := function[setFunc](t.below.FxSetSystemCall)(tls, below, name, pointer(traceOpenDirectory)); rc != sqlite3.SQLITE_OK {
		panic(rc)
	}
}

func traceOpenDirectory(tls *libc.TLS, path, fd uintptr) int32 {
	theTracer.dirOpened = true // within traceSync or traceDelete, which hold mu
	return function[dirFunc](theTracer.openDir)(tls, path, fd)
}

func traceOpen(tls *libc.TLS, vfs, path, file uintptr, flags int32, out uintptr) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	rc := function[openFunc](t.below.FxOpen)(tls, vfs, path, file, flags, out)
	if rc != sqlite3.SQLITE_OK || path == 0 {
		return rc
	}
	name := filepath.Base(libc.GoString(path))
	t.sizes[name] = sizeOf(tls, file)
	t.recordLocked('o', name, 0, nil)
	t.wrapLocked(tls, file, name)
	return rc
}

// wrapLocked puts our methods into an open file.
func (t *tracer) wrapLocked(tls *libc.TLS, file uintptr, name string) {
	theirs := at[sqlite3.Tsqlite3_file](file).FpMethods
	if t.tables[theirs] == 0 {
		ours := sqlite3.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
		m := at[sqlite3.Tsqlite3_io_methods](ours)
		*m = *at[sqlite3.Tsqlite3_io_methods](theirs)
		m.FxWrite, m.FxTruncate, m.FxSync, m.FxClose = pointer(traceWrite), pointer(traceTruncate), pointer(traceSync), pointer(traceClose)
		t.tables[theirs] = ours
	}
	t.files[file] = &tracedFile{name: name, below: at[sqlite3.Tsqlite3_io_methods](theirs)}
	at[sqlite3.Tsqlite3_file](file).FpMethods = t.tables[theirs]
}

func sizeOf(tls *libc.TLS, file uintptr) int64 {
	var size int64
	p := sqlite3.Xsqlite3_malloc(tls, 8)
	defer sqlite3.Xsqlite3_free(tls, p)
	m := at[sqlite3.Tsqlite3_io_methods](at[sqlite3.Tsqlite3_file](file).FpMethods)
	if function[dirFunc](m.FxFileSize)(tls, file, p) == sqlite3.SQLITE_OK {
		size = *at[int64](p)
	}
	return size
}

// roomLocked is how many of the n bytes at offset fit on the disk.
func (t *tracer) roomLocked(name string, n int32, offset int64) int32 {
	growth := offset + int64(n) - t.sizes[name]
	if growth <= 0 {
		return n
	}
	text, ok := strings.CutPrefix(t.says(), "room ")
	if !ok {
		return n
	}
	room, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	for _, size := range t.sizes {
		room -= size
	}
	return n - int32(min(max(growth-max(room, 0), 0), int64(n)))
}

func traceWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	f, name := t.files[file], t.files[file].name
	fits := t.roomLocked(name, n, offset)
	if fits > 0 {
		t.recordLocked('w', name, offset, unsafe.Slice(at[byte](data), fits))
		if rc := function[writeFunc](f.below.FxWrite)(tls, file, data, fits, offset); rc != sqlite3.SQLITE_OK {
			return rc
		}
		t.sizes[name] = max(t.sizes[name], offset+int64(fits))
	}
	if fits < n {
		t.recordLocked('!', name, offset, nil)
		return sqlite3.SQLITE_FULL
	}
	return sqlite3.SQLITE_OK
}

func traceTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[file]
	t.recordLocked('t', f.name, size, nil)
	t.sizes[f.name] = size
	return function[sizeFunc](f.below.FxTruncate)(tls, file, size)
}

func traceSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[file]
	if t.says() == "fail sync" {
		t.recordLocked('f', f.name, 0, nil)
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	t.dirOpened = false
	rc := function[flagFunc](f.below.FxSync)(tls, file, flags)
	if rc == sqlite3.SQLITE_OK {
		t.recordLocked('s', f.name, 0, nil)
		t.syncedDirLocked()
	}
	return rc
}

func (t *tracer) syncedDirLocked() {
	if t.dirOpened {
		t.recordLocked('D', "", 0, nil)
	}
}

// tracedLog is a log that the store writes again by itself.
type tracedLog struct{ *os.File }

// WriteAt implements io.WriterAt.
func (f tracedLog) WriteAt(p []byte, at int64) (int, error) {
	if t := theTracer; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.recordLocked('w', filepath.Base(f.Name()), at, p)
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
	t.recordLocked(kind, filepath.Base(f.Name()), 0, nil)
	return err
}

func traceClose(tls *libc.TLS, file uintptr) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[file]
	delete(t.files, file)
	return function[fileFunc](f.below.FxClose)(tls, file)
}

func traceDelete(tls *libc.TLS, vfs, path uintptr, dirSync int32) int32 {
	t := theTracer
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirOpened = false
	name := filepath.Base(libc.GoString(path))
	rc := function[pathFunc](t.below.FxDelete)(tls, vfs, path, dirSync)
	if rc == sqlite3.SQLITE_OK {
		t.recordLocked('d', name, 0, nil)
		delete(t.sizes, name)
		t.syncedDirLocked()
	}
	return rc
}
