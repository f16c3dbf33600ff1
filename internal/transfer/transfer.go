// Package transfer writes all signers of a store to a file of JSON lines, and reads such a file
// into another store.
//
// It promises that a file is whole or refused: its last line counts the others and has their
// SHA-256; that what is read back is what was written, to the bit; and that an import happens as a
// whole or not at all. A signer comes to the other store with its cursor, floor, open nonces with
// attempts, deadlines, holders and hashes, remembered request ids, transactions that are offered to
// nodes, and, where the export was asked for it, its history.
//
// It does not promise that one gateway at a time hands out a signer's nonces: the operator that moves signers
// stops those of the old store first, or lets them go on after a copy that only a person looks at.
// Fencing tokens, shards, nodes, API keys and tickets stay where they are. What a log of the
// performance engine had is folded into attempts and versions (rules.Alone), because the other
// store never had that log.
//
// It starts no goroutine and holds no lock. Where to begin reading: this file, lines.go (what a
// line has, and what is refused).
package transfer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/rules"
	"noncegate/wire"
)

// version is of the form of the file. A reader refuses any other.
const version = 1

// maxLine bounds a line in bytes: a signer may have nonce.MaxLive open nonces with nonce.MaxHashes
// hashes each, and up to five times as many after a loss of Redis.
const maxLine = 64 << 20

// Counts is what a file has.
type Counts struct {
	Signers  int `json:"signers"`
	Open     int `json:"open"` // nonces that are HELD or RELEASED
	History  int `json:"history"`
	Requests int `json:"requests"`
	Sent     int `json:"sent"`
}

// Export writes all signers of a store to w. The error names the signer that cannot be moved, and why.
func Export(ctx context.Context, from nonce.Exporter, name string, history bool, w io.Writer) (Counts, error) {
	out := exporter{w: bufio.NewWriterSize(w, 1<<16), sum: sha256.New()}
	err := from.Export(ctx, history, func(now time.Time, part *nonce.Kept) error {
		if out.lines == 0 {
			if err := out.line(line{Export: &head{version, name, wire.Time(now), history}}); err != nil {
				return err
			}
		}
		return out.part(now, part)
	})
	if err == nil {
		err = out.line(line{End: &end{out.counts, hex.EncodeToString(out.sum.Sum(nil))}})
	}
	if err == nil {
		err = out.w.Flush()
	}
	return out.counts, err
}

// exporter writes lines.
type exporter struct {
	w      *bufio.Writer
	sum    hash.Hash // of all lines
	lines  int
	counts Counts
	epoch  int64 // how many losses the last signer outlived
}

func (x *exporter) line(l line) error {
	text, err := json.Marshal(&l)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	x.lines++
	_, _ = x.sum.Write(text) // a hash has no error
	_, err = x.w.Write(text)
	return err
}

func (x *exporter) part(now time.Time, part *nonce.Kept) error {
	if len(part.Names) > 0 {
		names := make(map[string]string, len(part.Names))
		for key, name := range part.Names {
			names[key.String()] = name
		}
		return x.line(line{Principals: names})
	}
	if at := part.Signer; at != nil {
		x.epoch = at.Epoch
		if at.Err != nil {
			return fmt.Errorf("signer %s: %w", part.Name, at.Err)
		}
		alone, err := rules.Alone(at.Signer, &at.Shard, now.UnixMilli())
		if err != nil {
			return fmt.Errorf("signer %s: %w", part.Name, err)
		}
		x.counts.Signers++
		x.counts.Open += len(alone.Live)
		if err := x.line(line{Signer: signerLineOf(part.Name, &alone, at.Watch)}); err != nil {
			return err
		}
	}
	more := moreLine{Of: part.Name}
	for i := range part.History {
		p := &part.History[i]
		p.Attempt = rules.AloneAttempt(p.Attempt, x.epoch)
		more.History = append(more.History, pastLineOf(p))
	}
	for i := range part.Requests {
		more.Requests = append(more.Requests, requestLineOf(&part.Requests[i]))
	}
	for i := range part.Sent {
		more.Sent = append(more.Sent, sentLineOf(&part.Sent[i]))
	}
	x.counts.History += len(more.History)
	x.counts.Requests += len(more.Requests)
	x.counts.Sent += len(more.Sent)
	if len(more.History)+len(more.Requests)+len(more.Sent) == 0 {
		return nil
	}
	return x.line(line{More: &more})
}

// Import reads what Export wrote into a store that knows none of its signers. An error says that
// nothing happened, unless it is a nonce.StoreError of another outcome.
func Import(ctx context.Context, r io.Reader, to nonce.KeptStore) (Counts, error) {
	in := importer{sum: sha256.New()}
	in.lines = bufio.NewScanner(r)
	in.lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	return in.counts, to.Import(ctx, in.next)
}

// importer reads lines.
type importer struct {
	lines  *bufio.Scanner
	sum    hash.Hash // of all lines before
	number int       // of the line
	ended  bool
	counts Counts
	signer *nonce.KeptSigner // the last one, whose rows follow
	name   string
}

// next is the next part, and io.EOF where the file has ended as it must.
func (x *importer) next() (*nonce.Kept, error) {
	for {
		if !x.lines.Scan() {
			if err := x.lines.Err(); err != nil {
				return nil, fmt.Errorf("line %d: %w", x.number+1, err)
			}
			if !x.ended {
				return nil, errors.New("the file has no last line: it was cut off, or the export did not end")
			}
			return nil, io.EOF
		}
		x.number++
		part, err := x.read(x.lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", x.number, err)
		}
		if part != nil {
			return part, nil
		}
	}
}

// read reads a line; nil: it is no part of a signer.
func (x *importer) read(text []byte) (*nonce.Kept, error) {
	var l line
	known := json.NewDecoder(bytes.NewReader(text))
	known.DisallowUnknownFields()
	if err := known.Decode(&l); err != nil {
		return nil, err
	}
	if x.ended {
		return nil, errors.New("there is more behind the last line")
	}
	if l.End != nil {
		x.ended = true
		return nil, x.check(l.End)
	}
	_, _ = x.sum.Write(append(text[:len(text):len(text)], '\n')) // a hash has no error
	switch {
	case x.number == 1 && l.Export == nil:
		return nil, errors.New("it is no export of a gateway")
	case x.number == 1 && l.Export.Version != version:
		return nil, fmt.Errorf("the export is of version %d, and this gateway knows %d", l.Export.Version, version)
	case x.number == 1:
		return nil, nil
	case l.Principals != nil:
		return principalsOf(l.Principals)
	case l.Signer != nil:
		return x.begin(l.Signer)
	case l.More != nil:
		return x.more(l.More)
	}
	return nil, errors.New("the line has nothing that is known")
}

func (x *importer) check(e *end) error {
	if sum := hex.EncodeToString(x.sum.Sum(nil)); e.Counts != x.counts || e.SHA256 != sum {
		return errors.New("what the last line counts is not what the file has: it was changed, or a part is missing")
	}
	return nil
}

func (x *importer) begin(l *signerLine) (*nonce.Kept, error) {
	at, err := l.signer()
	if err != nil {
		return nil, fmt.Errorf("signer %s: %w", l.Name, err)
	}
	if l.Name <= x.name {
		return nil, fmt.Errorf("signer %s comes after %s: signers stand in order of name, each once", l.Name, x.name)
	}
	x.name, x.signer = l.Name, at
	x.counts.Signers++
	x.counts.Open += len(at.Live)
	return &nonce.Kept{Name: l.Name, Signer: at}, nil
}

func (x *importer) more(l *moreLine) (*nonce.Kept, error) {
	if x.signer == nil || l.Of != x.name {
		return nil, fmt.Errorf("of: must be the signer of the lines before, %q", x.name)
	}
	part := &nonce.Kept{Name: x.name}
	for i := range l.History {
		p, err := l.History[i].past(x.signer)
		if err != nil {
			return nil, fmt.Errorf("history[%d].%w", i, err)
		}
		part.History = append(part.History, p)
	}
	for i := range l.Requests {
		q, err := l.Requests[i].request(x.signer)
		if err != nil {
			return nil, fmt.Errorf("requests[%d].%w", i, err)
		}
		part.Requests = append(part.Requests, q)
	}
	for i := range l.Sent {
		t, err := l.Sent[i].sent(x.name)
		if err != nil {
			return nil, fmt.Errorf("sent[%d].%w", i, err)
		}
		part.Sent = append(part.Sent, t)
	}
	x.counts.History += len(part.History)
	x.counts.Requests += len(part.Requests)
	x.counts.Sent += len(part.Sent)
	return part, nil
}
