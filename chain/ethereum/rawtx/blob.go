package rawtx

import (
	"crypto/sha256"

	"noncegate/chain/ethereum/address"
)

// Sizes of EIP-4844 and EIP-7594.
const (
	blobBytes       = 131072
	kzgBytes        = 48 // of a commitment, and of a proof
	cellProofs      = 128
	blobHashVersion = 0x01
	cellVersion     = 1 // of the sidecar that has them
)

// The fields of a sidecar, which follow the transaction in the list of both.
var (
	sidecarNames     = []string{"blobs", "commitments", "proofs"}
	cellSidecarNames = []string{"version", "blobs", "commitments", "proofs"}
)

// sidecarPlace is where they stand in errors: sidecar.blobs[2].
var sidecarPlace = place{list: "sidecar", index: noIndex}

// decodeBlob reads a transaction of type 3. In the form that blocks have it is the list
// of its fields; in the form that nodes are sent it is a list that begins with that
// list, and the sidecar follows.
func decodeBlob(raw []byte) (*Tx, error) {
	list, err := envelope(raw, Blob, MaxBlobSize)
	if err != nil {
		return nil, err
	}
	if len(list.body) == 0 {
		return nil, refuse(ErrEncoding, whole, "has no fields")
	}
	inner, rest, err := first(list.body)
	if err != nil {
		return nil, refuse(ErrEncoding, whole, "begins with an item that %v", err)
	}
	if !inner.list { // the chain id
		inner, rest = list, nil
	}
	if len(inner.raw) >= MaxSize {
		return nil, refuse(ErrTooLarge, whole, "has %d bytes without a sidecar, %d at most are taken", 1+len(inner.raw), MaxSize)
	}
	r, err := readFields(inner, Blob)
	if err != nil {
		return nil, err
	}
	// The hash is that of the form without sidecar, whichever came.
	r.tx.Hash = address.Keccak256([]byte{Blob}, inner.raw)
	if rest != nil {
		if r.tx.Sidecar, err = readSidecar(rest, r.hashes); err != nil {
			return nil, err
		}
	}
	return r.finish()
}

// blobHashes reads the hashes of the blobs' commitments, and returns them one after the
// other.
func (f *fields) blobHashes() []byte {
	list := f.list()
	if f.err != nil {
		return nil
	}
	var hashes []byte
	_, f.err = each(list, f.at, f.names[f.next-1], func(it item) error {
		if err := fixed(it, sha256.Size); err != nil {
			return err
		}
		hashes = append(hashes, it.body...)
		return nil
	})
	for i := 0; i < len(hashes); i += sha256.Size {
		if hashes[i] != blobHashVersion {
			f.fail(ErrContent, "must begin with the version 0x01 each (EIP-4844), number %d does not", i/sha256.Size)
		}
	}
	if len(hashes) == 0 {
		f.fail(ErrContent, "must name at least one blob (EIP-4844)")
	}
	return hashes
}

// readSidecar checks the sidecar of a transaction that names blobs by these hashes.
func readSidecar(body, hashes []byte) (*Sidecar, error) {
	list := item{body: body, list: true}
	s := &Sidecar{}
	n := len(hashes) / sha256.Size
	names, proofs := sidecarNames, n
	// Version 0 has no version: its first field is the list of blobs.
	if len(body) > 0 && body[0] < shortList {
		names, proofs = cellSidecarNames, n*cellProofs
	}
	f, err := open(list, sidecarPlace, names)
	if err != nil {
		return nil, err
	}
	if len(names) == len(cellSidecarNames) {
		s.Version = cellVersion
		if f.uint64() != cellVersion {
			f.fail(ErrContent, "must be 1 (EIP-7594); version 0 is written without one")
		}
	}
	s.Blobs = n
	f.pieces(n, blobBytes, nil)
	f.pieces(n, kzgBytes, func(i int, commitment []byte) bool {
		sum := sha256.Sum256(commitment)
		sum[0] = blobHashVersion
		return [sha256.Size]byte(hashes[i*sha256.Size:]) == sum
	})
	f.pieces(proofs, kzgBytes, nil)
	return s, f.err
}

// pieces reads a list of n strings that have size bytes each. fits, unless it is nil,
// says whether piece i belongs to hash i of the transaction.
func (f *fields) pieces(n, size int, fits func(i int, piece []byte) bool) {
	list := f.list()
	if f.err != nil {
		return
	}
	wrong, i := -1, 0
	got, err := each(list, f.at, f.names[f.next-1], func(it item) error {
		if err := fixed(it, size); err != nil {
			return err
		}
		if fits != nil && i < n && wrong < 0 && !fits(i, it.body) {
			wrong = i
		}
		i++
		return nil
	})
	switch {
	case err != nil:
		f.err = err
	case got != n:
		f.fail(ErrContent, "must be %d for the blobs that the transaction names, are %d", n, got)
	case wrong >= 0:
		f.fail(ErrContent, "must have the hashes that the transaction names, number %d has another", wrong)
	}
}
