package service

import (
	"unsafe"

	"noncegate/nonce"
)

// signer is what a worker remembers of a signer whose shard is this node's: the whole row.
type signer struct {
	name  string
	shard *shard
	stay  uint64 // the shard's stay when the signer was read
	row   nonce.Signer
	token int64 // under which the row was written last

	chain nonce.ChainSigner // nil: no chain is configured for it

	size     int64       // of memory, as it was counted last
	dueAt    int64       // for when it is in the list of deadlines; 0: it is not
	index    int         // in that list
	listed   int64       // for when the store has it listed, as far as is known; 0: it is not
	watch    nonce.Watch // as which the store has it among those that are watched, as far as is known
	reserved int64       // see Signer.Reserved

	ahead   bool  // of its row; memory is whole
	pinned  bool  // it is not known whether what was planned of it last has happened
	stopped bool  // the store showed less of it than was seen, or refused what memory has of it
	unseen  bool  // it is stopped although nothing was seen that the store lacks: only a floor that is given here lets it serve again
	safe    int64 // a floor at or above it lets it serve again

	// The version that was confirmed ahead of the row when the shard was lost, and the epoch of that; 0:
	// the row had all of it.
	confirmed, confirmedIn int64

	newer, older *signer // by when it was used last
}

// bytes is what the signer takes of memory, about.
func (s *signer) bytes() int64 {
	const fixed = int64(unsafe.Sizeof(signer{})) + 64 // and its entry in the map
	n := fixed + int64(len(s.name)) + int64(cap(s.row.Live))*int64(unsafe.Sizeof(nonce.Entry{}))
	for i := range s.row.Live {
		if note := s.row.Live[i].Note; note != nil {
			n += int64(unsafe.Sizeof(*note)) + int64(len(note.Reason)+len(note.Replaced))
			if note.Earlier != nil {
				n += int64(unsafe.Sizeof(*note.Earlier))
			}
		}
	}
	return n
}

// memory is what a worker remembers. The least recently used signer is forgotten when
// there are too many signers, or too many bytes of them.
type memory struct {
	signers  map[string]*signer
	newest   signer // joins the ends of the ring: its older is the signer used last, its newer the one used longest ago
	dates    dates
	bytes    int64
	maxCount int
	maxBytes int64
}

func newMemory(count int, bytes int64) *memory {
	m := &memory{signers: make(map[string]*signer), maxCount: max(1, count), maxBytes: bytes}
	m.newest.newer, m.newest.older = &m.newest, &m.newest
	return m
}

// use finds a signer and makes it the one used last; nil: it is to be read. One of an earlier
// stay is kept, because what was seen of it is what the row is compared with.
func (m *memory) use(name string) *signer {
	s := m.signers[name]
	if s == nil || s.stay != s.shard.Stay {
		return nil
	}
	m.unlink(s)
	m.link(s)
	return s
}

func (m *memory) add(s *signer) {
	m.signers[s.name] = s
	m.link(s)
	m.count(s)
	m.dates.expect(s)
}

// count follows what the signer takes.
func (m *memory) count(s *signer) {
	was := s.size
	s.size = s.bytes()
	m.bytes += s.size - was
}

// set replaces the row of a signer, which may have been forgotten since it was found.
func (m *memory) set(s *signer, row nonce.Signer, token int64) {
	s.row, s.token = row, token
	if m.signers[s.name] == s {
		m.count(s)
		m.dates.expect(s)
	}
}

func (m *memory) forget(s *signer) {
	if m.signers[s.name] != s {
		return
	}
	m.unlink(s)
	m.dates.drop(s)
	m.bytes -= s.size
	s.size = 0
	delete(m.signers, s.name)
	s.disown()
}

// disown has the signer's chain not be followed any more.
func (s *signer) disown() {
	if s.chain != nil {
		s.chain.Owned(false)
		s.chain = nil
	}
}

// evict forgets signers until there is room.
func (m *memory) evict() {
	for n := len(m.signers); n > 0 && (len(m.signers) > m.maxCount || m.bytes > m.maxBytes); n-- {
		s := m.newest.newer // the one used longest ago
		if s.stopped || s.ahead || s.pinned {
			m.unlink(s)
			m.link(s)
			continue
		}
		m.forget(s)
	}
}

func (m *memory) link(s *signer) {
	s.older, s.newer = m.newest.older, &m.newest
	s.older.newer, m.newest.older = s, s
}

func (m *memory) unlink(s *signer) {
	s.older.newer, s.newer.older = s.newer, s.older
}
