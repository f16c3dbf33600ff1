package rawtx

import (
	"crypto/sha256"
)

// Sizes of EIP-4844 and EIP-7594.
const (
	blobBytes       = 131072
	kzgBytes        = 48 // of a commitment, and of a proof
	cellProofs      = 128
	blobHashVersion = 0x01
	cellVersion     = 1 // of the sidecar that has cell proofs
)

// The fields of a sidecar, which follow the transaction in the list of both. Version 0 has no
// version.
var (
	sidecarNames     = []string{"blobs", "commitments", "proofs"}
	cellSidecarNames = []string{"version", "blobs", "commitments", "proofs"}
)

// unwrap returns the list of a blob transaction's fields and its sidecar, nil if there is none. In
// the form that blocks have it is the list of its fields; in the form that nodes are sent it
// is a list that begins with that list, and the sidecar follows.
func unwrap(list item) (inner item, sidecar []byte, err *Error) {
	if len(list.body) == 0 {
		return item{}, nil, refuse("has no fields")
	}
	inner, sidecar, err = first(list.body)
	if err != nil {
		return item{}, nil, refuse("begins with an item that %s", err.Rule)
	}
	if !inner.list { // the chain id
		inner, sidecar = list, nil
	}
	if len(inner.raw) >= MaxSize {
		return item{}, nil, refuse("has %d bytes without a sidecar, %d at most are taken", 1+len(inner.raw), MaxSize)
	}
	return inner, sidecar, nil
}

// blobHashes reads the hashes of the blobs' commitments.
func (f *fields) blobHashes() {
	var hashes []byte
	f.each(func(it item) *Error {
		hashes = append(hashes, it.body...)
		return fixed(it, sha256.Size)
	})
	for i := 0; f.err == nil && i < len(hashes); i += sha256.Size {
		if hashes[i] != blobHashVersion {
			f.fail("must begin with the version 0x01 each (EIP-4844), number %d does not", i/sha256.Size)
		}
	}
	if len(hashes) == 0 {
		f.fail("must name at least one blob (EIP-4844)")
	}
	f.hashes = hashes
}

// readSidecar checks the sidecar of a transaction that names blobs by these hashes.
func readSidecar(body, hashes []byte) (*Sidecar, *Error) {
	s := &Sidecar{Blobs: len(hashes) / sha256.Size}
	names, proofs := sidecarNames, s.Blobs
	if len(body) > 0 && body[0] < shortList { // no list of blobs
		names, proofs, s.Version = cellSidecarNames, s.Blobs*cellProofs, cellVersion
	}
	f, err := open(item{body: body, list: true}, names, 0)
	if err != nil {
		return nil, err
	}
	if s.Version == cellVersion && f.uint64() != cellVersion {
		f.fail("must be 1 (EIP-7594); version 0 is written without one")
	}
	f.pieces(s.Blobs, blobBytes, nil)
	f.pieces(s.Blobs, kzgBytes, hashes)
	f.pieces(proofs, kzgBytes, nil)
	return s, f.err
}

// pieces reads a list of n strings that have size bytes each, and these hashes, if there are any.
func (f *fields) pieces(n, size int, hashes []byte) {
	i, wrong := 0, -1
	got := f.each(func(it item) *Error {
		if hashes != nil && i < n && wrong < 0 {
			sum := sha256.Sum256(it.body)
			if sum[0] = blobHashVersion; sum != [sha256.Size]byte(hashes[i*sha256.Size:]) {
				wrong = i
			}
		}
		i++
		return fixed(it, size)
	})
	switch {
	case f.err != nil:
	case got != n:
		f.fail("must be %d for the blobs that the transaction names, are %d", n, got)
	case wrong >= 0:
		f.fail("must have the hashes that the transaction names, number %d has another", wrong)
	}
}
