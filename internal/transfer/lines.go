package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

// line is one line of the file; one of its fields is there. The first line has export, the last end.
type line struct {
	Export     *head             `json:"noncegateExport,omitempty"`
	Principals map[string]string `json:"principals,omitempty"` // names, by the eight bytes of holders in hexadecimal
	Signer     *signerLine       `json:"signer,omitempty"`
	More       *moreLine         `json:"more,omitempty"`
	End        *end              `json:"end,omitempty"`
}

type head struct {
	Version int       `json:"version"`
	Store   string    `json:"store"` // postgres or sqlite
	At      wire.Time `json:"at"`    // the moment of all that follows, by the store's clock
	History bool      `json:"history"`
}

type end struct {
	Counts
	SHA256 string `json:"sha256"` // of all lines before, line ends included
}

// signerLine is a signer.
type signerLine struct {
	Name    string     `json:"name"`
	Version int64      `json:"version"`
	Next    int64      `json:"next"`
	Floor   int64      `json:"floor"`
	Live    []liveLine `json:"live,omitempty"` // every nonce below next that is HELD or RELEASED
	Watch   *watchLine `json:"watch,omitempty"`
}

type liveLine struct {
	Nonce     int64        `json:"nonce"`
	Status    string       `json:"status"`
	Attempt   int64        `json:"attempt"`
	HeldUntil *wire.Time   `json:"heldUntil,omitempty"`
	Holder    string       `json:"holder,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	TxHashes  []string     `json:"txHashes,omitempty"` // the newest, then those that it replaced, oldest first
	Earlier   *earlierLine `json:"reissued,omitempty"`
}

type earlierLine struct {
	Attempt int64  `json:"attempt"`
	Reason  string `json:"reason"`
	TxHash  string `json:"txHash,omitempty"`
}

type watchLine struct {
	Trouble string     `json:"trouble,omitempty"` // gap, dropped or stuck; absent where nothing is known of any
	Clear   bool       `json:"clear,omitempty"`   // it is known that there is none
	Nonce   int64      `json:"nonce,omitempty"`
	Since   *wire.Time `json:"since,omitempty"`
}

// moreLine has what belongs to the signer of the lines before.
type moreLine struct {
	Of       string        `json:"of"`
	History  []pastLine    `json:"history,omitempty"`
	Requests []requestLine `json:"requests,omitempty"`
	Sent     []sentLine    `json:"sent,omitempty"`
}

type pastLine struct {
	Nonce    int64     `json:"nonce"`
	Attempt  int64     `json:"attempt"`
	Holder   string    `json:"holder,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	TxHashes []string  `json:"txHashes,omitempty"`
	At       wire.Time `json:"at"`
}

type requestLine struct {
	ID     string     `json:"requestId"`
	Hash   string     `json:"hash"`   // of its parameters
	Nonces [][2]int64 `json:"nonces"` // with their attempts
	At     wire.Time  `json:"at"`
}

type sentLine struct {
	Nonce   int64     `json:"nonce"`
	TxHash  string    `json:"txHash"`
	Payment string    `json:"payment"`
	State   string    `json:"state"`
	Raw     string    `json:"raw,omitempty"`
	LookAt  wire.Time `json:"lookAt"`
}

func momentOf(ms int64) *wire.Time { return new(wire.Time(time.UnixMilli(ms))) }

func holderOf(p nonce.Principal) string {
	if p == 0 {
		return ""
	}
	return p.String()
}

func readHolder(text string) (nonce.Principal, error) {
	if text == "" {
		return 0, nil
	}
	p, err := nonce.ParsePrincipal(text)
	return p, named("holder", err)
}

// named puts the field before an error.
func named(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

func hashesOf(newest nonce.TxHash, replaced nonce.TxHashes) (out []string) {
	if newest == (nonce.TxHash{}) {
		return nil
	}
	out = append(out, newest.String())
	for i := range replaced.Len() {
		out = append(out, replaced.At(i).String())
	}
	return out
}

func readHashes(texts []string) (newest nonce.TxHash, replaced nonce.TxHashes, err error) {
	if len(texts) > nonce.MaxHashes {
		return newest, "", fmt.Errorf("txHashes: must be at most %d", nonce.MaxHashes)
	}
	for i, text := range texts {
		h, err := nonce.ParseTxHash(text)
		if err != nil {
			return newest, "", fmt.Errorf("txHashes[%d]: %w", i, err)
		}
		if i == 0 {
			newest = h
		} else {
			replaced = replaced.Append(h)
		}
	}
	return newest, replaced, nil
}

func readNumber(field string, n, least int64) error {
	if n < least {
		return fmt.Errorf("%s: must be at least %d", field, least)
	}
	return nil
}

func signerLineOf(name string, s *nonce.Signer, w nonce.Watch) *signerLine {
	l := &signerLine{Name: name, Version: s.Version, Next: s.Next, Floor: s.Floor}
	for i := range s.Live {
		r := s.Live[i].Row()
		at := liveLine{Nonce: r.Nonce, Status: r.Status.String(), Attempt: r.Attempt, Holder: holderOf(r.Holder), Reason: r.Reason,
			TxHashes: hashesOf(r.TxHash, r.Replaced)}
		if r.Status == nonce.Held {
			at.HeldUntil = momentOf(s.Live[i].Until)
		}
		if was := r.Earlier; was != nil {
			at.Earlier = &earlierLine{was.Attempt, was.Reason, was.TxHash.String()}
		}
		l.Live = append(l.Live, at)
	}
	if w.Kind >= nonce.WatchOn {
		l.Watch = &watchLine{Trouble: w.Kind.String(), Clear: w.Kind == nonce.WatchClear}
		if w.Kind.Trouble() {
			l.Watch.Nonce, l.Watch.Since = w.Nonce, momentOf(w.Since)
		}
	}
	return l
}

// signer reads a signer, and refuses one that no gateway writes.
func (l *signerLine) signer() (*nonce.KeptSigner, error) {
	if name, err := nonce.ParseSigner(l.Name); err != nil || name != l.Name {
		return nil, named("name", errOr(err, "must be spelled in lower case"))
	}
	for _, rule := range []struct {
		field    string
		n, least int64
	}{{"version", l.Version, 1}, {"floor", l.Floor, 0}, {"next", l.Next, l.Floor}} {
		if err := readNumber(rule.field, rule.n, rule.least); err != nil {
			return nil, err
		}
	}
	at := &nonce.KeptSigner{Signer: nonce.Signer{Version: l.Version, Next: l.Next, Floor: l.Floor}}
	for i := range l.Live {
		e, err := l.Live[i].entry()
		if err != nil {
			return nil, fmt.Errorf("live[%d].%w", i, err)
		}
		if i > 0 && e.Nonce <= at.Live[i-1].Nonce || e.Nonce >= l.Next {
			return nil, fmt.Errorf("live[%d].nonce: must be above the one before, and below next", i)
		}
		at.Live = append(at.Live, e)
	}
	again, err := nonce.ParseLive(nonce.AppendLive(nil, at.Live), l.Next)
	if err != nil {
		return nil, named("live", err)
	}
	if !reflect.DeepEqual(again, at.Live) {
		return nil, errors.New("live: it is not what a gateway writes")
	}
	at.Watch, err = l.Watch.watch()
	return at, named("watch", err)
}

// errOr is err, or else an error of the text.
func errOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

func (l *liveLine) entry() (e nonce.Entry, err error) {
	e = nonce.Entry{Nonce: l.Nonce, Attempt: l.Attempt}
	if err := errors.Join(readNumber("nonce", l.Nonce, 0), readNumber("attempt", l.Attempt, 1)); err != nil {
		return e, err
	}
	switch {
	case l.Status == nonce.Held.String() && l.HeldUntil != nil:
		e.Status, e.Until = nonce.Held, time.Time(*l.HeldUntil).UnixMilli()
	case l.Status == nonce.Released.String() && l.HeldUntil == nil:
		e.Status = nonce.Released
	default:
		return e, errors.New("status: must be HELD, with heldUntil, or RELEASED, without")
	}
	if e.Holder, err = readHolder(l.Holder); err != nil {
		return e, err
	}
	var note nonce.Note
	if note.Reason, err = nonce.ParseReason(l.Reason); err != nil {
		return e, named("reason", err)
	}
	if note.TxHash, note.Replaced, err = readHashes(l.TxHashes); err != nil {
		return e, err
	}
	if was := l.Earlier; was != nil {
		note.Earlier = &nonce.Earlier{Attempt: was.Attempt, Reason: was.Reason}
		if was.Attempt < 1 || was.Attempt >= l.Attempt {
			return e, errors.New("reissued.attempt: must be at least 1 and below the attempt")
		}
		if was.Reason != nonce.ReasonUnseen && was.Reason != nonce.ReasonRepair {
			return e, errors.New("reissued.reason: must be unseen or repair")
		}
		if was.TxHash != "" {
			if note.Earlier.TxHash, err = nonce.ParseTxHash(was.TxHash); err != nil {
				return e, named("reissued.txHash", err)
			}
		}
	}
	if note != (nonce.Note{}) {
		e.Note = &note
	}
	return e, nil
}

func (l *watchLine) watch() (w nonce.Watch, err error) {
	if l == nil {
		return w, nil
	}
	for kind := nonce.WatchOn; kind <= nonce.WatchStuck; kind++ {
		if kind.String() == l.Trouble && l.Clear == (kind == nonce.WatchClear) {
			w.Kind = kind
			break
		}
	}
	switch {
	case w.Kind < nonce.WatchOn:
		return w, errors.New("trouble: must be gap, dropped or stuck, and absent with clear")
	case w.Kind.Trouble() != (l.Since != nil) || l.Nonce < 0:
		return w, errors.New("since: must be there with trouble, and only then, and nonce at least 0")
	case l.Since != nil:
		w.Nonce, w.Since = l.Nonce, time.Time(*l.Since).UnixMilli()
	}
	return w, nil
}

func pastLineOf(p *nonce.Past) pastLine {
	return pastLine{p.Nonce, p.Attempt, holderOf(p.Holder), p.Reason, hashesOf(p.TxHash, p.Replaced), wire.Time(p.At)}
}

func (l *pastLine) past(of *nonce.KeptSigner) (p nonce.Past, err error) {
	p.Nonce, p.Attempt, p.At = l.Nonce, l.Attempt, time.Time(l.At)
	if l.Nonce < 0 || l.Nonce >= of.Next {
		return p, errors.New("nonce: must be at least 0 and below next")
	}
	if err := readNumber("attempt", l.Attempt, 0); err != nil {
		return p, err
	}
	if p.Holder, err = readHolder(l.Holder); err != nil {
		return p, err
	}
	if p.Reason, err = nonce.ParseReason(l.Reason); err != nil {
		return p, named("reason", err)
	}
	p.TxHash, p.Replaced, err = readHashes(l.TxHashes)
	return p, err
}

func requestLineOf(q *nonce.KeptRequest) requestLine {
	l := requestLine{ID: q.ID, Hash: hex.EncodeToString(q.Hash[:]), At: wire.Time(q.At), Nonces: make([][2]int64, len(q.Nonces))}
	for i, n := range q.Nonces {
		l.Nonces[i] = [2]int64{n, q.Attempts[i]}
	}
	return l
}

func (l *requestLine) request(of *nonce.KeptSigner) (q nonce.KeptRequest, err error) {
	if q.ID, err = nonce.ParseRequestID(l.ID); err != nil {
		return q, named("requestId", err)
	}
	if err := readBytes("hash", l.Hash, q.Hash[:]); err != nil {
		return q, err
	}
	q.At, q.Nonces, q.Attempts = time.Time(l.At), make([]int64, len(l.Nonces)), make([]int64, len(l.Nonces))
	for i, pair := range l.Nonces {
		if pair[0] < 0 || pair[0] >= of.Next || pair[1] < 1 {
			return q, fmt.Errorf("nonces[%d]: must be a nonce below next, and an attempt of at least 1", i)
		}
		q.Nonces[i], q.Attempts[i] = pair[0], pair[1]
	}
	return q, nil
}

// readBytes reads exactly as many bytes as into has.
func readBytes(field, text string, into []byte) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(into) {
		return fmt.Errorf("%s: must be %d hexadecimal digits", field, 2*len(into))
	}
	copy(into, b)
	return nil
}

func sentLineOf(t *nonce.KeptSent) sentLine {
	return sentLine{
		Nonce: t.Nonce, TxHash: t.Hash.String(), Payment: hex.EncodeToString(t.Payment[:]), State: t.State.String(),
		Raw: hex.EncodeToString(t.Raw), LookAt: wire.Time(t.LookAt),
	}
}

func (l *sentLine) sent(signer string) (t nonce.KeptSent, err error) {
	t.Signer, t.Nonce, t.LookAt = signer, l.Nonce, time.Time(l.LookAt)
	if err := readNumber("nonce", l.Nonce, 0); err != nil {
		return t, err
	}
	if t.Hash, err = nonce.ParseTxHash(l.TxHash); err != nil {
		return t, named("txHash", err)
	}
	if err := readBytes("payment", l.Payment, t.Payment[:]); err != nil {
		return t, err
	}
	for state := nonce.SentOpen; state <= nonce.SentRefused; state++ {
		if state.String() == l.State {
			t.State = state
		}
	}
	if t.State == 0 {
		return t, errors.New("state: must be open, taken or refused")
	}
	if t.Raw, err = hex.DecodeString(l.Raw); err != nil || len(t.Raw) > nonce.MaxSentBytes || (len(t.Raw) > 0) != (t.State == nonce.SentOpen) {
		return t, errors.New("raw: must be the hexadecimal digits of an open transaction, and absent of any other")
	}
	return t, nil
}

// principalsOf reads the names of principals, each under its own eight bytes.
func principalsOf(names map[string]string) (*nonce.Kept, error) {
	part := &nonce.Kept{Names: make(map[nonce.Principal]string, len(names))}
	for text, name := range names {
		key, err := nonce.ParsePrincipal(text)
		if err == nil && nonce.PrincipalOf(name) != key {
			err = errors.New("is not that of the name")
		}
		if err != nil {
			return nil, fmt.Errorf("principals[%.20q]: %w", text, err)
		}
		part.Names[key] = name
	}
	return part, nil
}
