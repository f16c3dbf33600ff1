package main

import (
	"cmp"
	"fmt"
	"os"
	"sync"
)

// logBytes is the size of the log of floor. It is written with zeros before, so that a commit
// changes data and no metadata; at its end the log begins anew, for nobody reads it.
const logBytes = 64 << 20

// durableLog is a file to which requests are appended, and synced in groups: what is appended
// while a sync is under way is written and synced by the next one. Its goroutine runs commit.
type durableLog struct {
	file *os.File
	ends sync.WaitGroup

	mu       sync.Mutex // guards what follows
	wake     *sync.Cond // pending or synced grew, or the log has ended
	pending  []byte
	appended int64 // bytes so far
	synced   int64 // of these
	err      error // of the disk: nothing is durable any more
	closed   bool
}

// openLog makes the log in a folder. The caller must close it.
func openLog(dir string) (*durableLog, error) {
	file, err := os.CreateTemp(dir, "floor")
	if err != nil {
		return nil, err
	}
	l := &durableLog{file: file}
	l.wake = sync.NewCond(&l.mu)
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < logBytes && err == nil; at += int64(len(zeros)) {
		_, err = file.WriteAt(zeros, at)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		file.Close()
		os.Remove(file.Name())
		return nil, fmt.Errorf("the log: %w", err)
	}
	l.ends.Go(l.commit)
	return l, nil
}

func (l *durableLog) add(request []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, request...)
	l.appended += int64(len(request))
	l.wake.Broadcast()
}

// await returns once everything that was appended before is on disk.
func (l *durableLog) await() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := l.appended; l.synced < want; l.wake.Wait() {
		if l.err != nil || l.closed {
			return cmp.Or(l.err, os.ErrClosed)
		}
	}
	return nil
}

// commit writes and syncs what is pending until the log is closed.
func (l *durableLog) commit() {
	var group []byte
	at := int64(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.pending) == 0 && !l.closed {
			l.wake.Wait()
		}
		if l.closed {
			return
		}
		group, l.pending = l.pending, group[:0]
		upTo := l.appended
		l.mu.Unlock()
		if at+int64(len(group)) > logBytes {
			at = 0
		}
		_, err := l.file.WriteAt(group, at)
		if err == nil {
			err = datasync(l.file)
		}
		at += int64(len(group))
		l.mu.Lock()
		l.err = err
		if err == nil {
			l.synced = upTo
		}
		l.wake.Broadcast()
		if err != nil {
			return
		}
	}
}

func (l *durableLog) close() {
	l.mu.Lock()
	l.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
	l.ends.Wait()
	l.file.Close()
	os.Remove(l.file.Name())
}
