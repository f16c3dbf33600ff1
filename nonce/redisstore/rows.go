package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"noncegate/nonce"
)

// How things are written in Redis. A row begins with a letter and the attempt:
//
//	H<attempt> <token> <deadline, microseconds>
//	H<attempt> <token> <deadline, microseconds> <end>
//	R<attempt> <token> <reason>
//	R<attempt> <token># <end>
//	C<attempt> <token> <version that consumed it> <end>
//
// An end is hashes and reason: - and the reason where there is no hash, else a letter that
// says how many there are (h: one, i: two, …), the hashes, 32 bytes each, as JoinHashes
// orders them, and the reason. A hold has one if it has a hash or a reason, a RELEASED row
// if it has a hash.
//
// Where the row is somebody's, @ and the principal in hexadecimal stand behind the
// token: H3 17@5f12… …
//
// The value of a request id is its hash, 16 bytes, and "nonce attempt nonce attempt…".

const letters = "?HRC" // by nonce.Status

var errForm = errors.New("it is not in the form that it is written in")

// prefix is how the row of a nonce in that state begins.
func prefix(s nonce.Status, attempt int64) string {
	return letters[s:s+1] + num(attempt) + " "
}

// rowText is a row as it is written. version is of the change that wrote it; only a
// CONSUMED row says it.
func rowText(r *nonce.Row, version int64) string {
	b := make([]byte, 0, 88+len(r.Replaced)+len(r.Reason))
	b = strconv.AppendInt(append(b, letters[r.Status]), r.Attempt, 10)
	b = strconv.AppendInt(append(b, ' '), r.Token, 10)
	b = append(b, of(r.Holder)...)
	hashes := nonce.JoinHashes(r.TxHash, r.Replaced)
	switch {
	case r.Status == nonce.Held:
		if b = strconv.AppendInt(append(b, ' '), r.HeldUntil.UnixMicro(), 10); hashes == nil && r.Reason == "" {
			return string(b)
		}
	case r.Status == nonce.Consumed:
		b = strconv.AppendInt(append(b, ' '), version, 10)
	case hashes == nil:
		return string(append(append(b, ' '), r.Reason...))
	default:
		b = append(b, '#')
	}
	b = append(b, ' ')
	if hashes == nil {
		b = append(b, '-')
	} else {
		b = append(append(b, firstLetter+byte(r.Replaced.Len())), hashes...)
	}
	return string(append(b, r.Reason...))
}

// firstLetter says that there is one hash; the letters after it, that there are more.
const firstLetter = 'h'

// of is what stands behind the token.
func of(holder nonce.Principal) string {
	if holder == 0 {
		return ""
	}
	return "@" + strconv.FormatUint(uint64(holder), 16)
}

// parseRow reads a row. Of a CONSUMED one it leaves the version out.
func parseRow(number, text string) (nonce.Row, error) {
	row := nonce.Row{}
	n, ok := parseNum(number)
	status := 0
	if text != "" {
		status = strings.IndexByte(letters, text[0])
	}
	if !ok || status < 1 {
		return row, fmt.Errorf("row %q %q: %w", number, text, errForm)
	}
	row.Nonce, row.Status = n, nonce.Status(status)
	attempt, rest, _ := strings.Cut(text[1:], " ")
	token, rest, whole := strings.Cut(rest, " ")
	row.Attempt, ok = parseNum(attempt)
	ended := false
	if row.Status == nonce.Released {
		token, ended = strings.CutSuffix(token, "#")
	}
	if whole && ok {
		row.Token, row.Holder, ok = parseToken(token)
	}
	if !whole || !ok || !parseRest(&row, rest, ended) {
		return row, fmt.Errorf("row %q %q: %w", number, text, errForm)
	}
	return row, nil
}

// parseToken reads the token, and whose the row is.
func parseToken(s string) (token int64, holder nonce.Principal, ok bool) {
	s, hex, somebodys := strings.Cut(s, "@")
	if somebodys {
		n, err := strconv.ParseUint(hex, 16, 64)
		if holder = nonce.Principal(n); err != nil || of(holder) != "@"+hex {
			return 0, 0, false
		}
	}
	token, ok = parseNum(s)
	return token, holder, ok
}

// parseRest reads what follows the token. ended: of a RELEASED row that is an end.
func parseRest(row *nonce.Row, rest string, ended bool) bool {
	number, end, more := strings.Cut(rest, " ")
	switch row.Status {
	case nonce.Held:
		until, ok := parseNum(number)
		row.HeldUntil = time.UnixMicro(until)
		return ok && (!more || parseEnd(row, end) && end != "-")
	case nonce.Released:
		if ended {
			return parseEnd(row, rest) && row.TxHash != nonce.TxHash{}
		}
		row.Reason = rest
		return true
	}
	_, ok := parseNum(number)
	return ok && parseEnd(row, end)
}

// parseEnd reads hashes and reason. No hash is only zeros.
func parseEnd(row *nonce.Row, end string) bool {
	if end == "" {
		return false
	}
	if end[0] == '-' {
		row.Reason = end[1:]
		return true
	}
	size := (int(end[0]) - firstLetter + 1) * len(row.TxHash)
	if end[0] < firstLetter || end[0] > 'z' || len(end) <= size {
		return false
	}
	row.TxHash, row.Replaced = nonce.SplitHashes([]byte(end[1 : 1+size]))
	row.Reason = end[1+size:]
	return row.TxHash != nonce.TxHash{}
}

// parseNum reads a decimal number of up to 63 bits as num writes it.
func parseNum(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && num(n) == s
}

// padded is a nonce as a member of the set of released ones, in whose order all have
// 19 digits.
func padded(n int64) string {
	s := num(n)
	return "0000000000000000000"[len(s):] + s
}

func requestValue(r *nonce.Request) string {
	b := make([]byte, 0, len(r.Hash)+12*len(r.Nonces))
	b = append(b, r.Hash[:]...)
	for i, n := range r.Nonces {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, n, 10)
		b = strconv.AppendInt(append(b, ' '), r.Attempts[i], 10)
	}
	return string(b)
}

func parseRequest(id, value string) (nonce.Request, error) {
	r := nonce.Request{ID: id}
	if copy(r.Hash[:], value) < len(r.Hash) {
		return r, fmt.Errorf("request %s: %w", id, errForm)
	}
	rest := value[len(r.Hash):]
	if rest == "" {
		return r, nil
	}
	words := strings.Split(rest, " ")
	for i := 0; i < len(words); i += 2 {
		n, ok := parseNum(words[i])
		if !ok || i+1 == len(words) {
			return r, fmt.Errorf("request %s: %w", id, errForm)
		}
		attempt, ok := parseNum(words[i+1])
		if !ok {
			return r, fmt.Errorf("request %s: %w", id, errForm)
		}
		r.Nonces, r.Attempts = append(r.Nonces, n), append(r.Attempts, attempt)
	}
	return r, nil
}

// state is what is in the field s.
type state struct{ id, token, version, held, released, next, floor int64 }

func parseState(s string) (state, error) {
	var st state
	words := strings.Split(s, " ")
	all := []*int64{&st.id, &st.token, &st.version, &st.held, &st.released, &st.next, &st.floor}
	if len(words) != len(all) {
		return st, fmt.Errorf("state %q: %w", s, errForm)
	}
	for i, w := range words {
		n, ok := parseNum(w)
		if !ok {
			return st, fmt.Errorf("state %q: %w", s, errForm)
		}
		*all[i] = n
	}
	return st, nil
}

// belief is how a state begins that is as the caller believes.
func belief(id, token, version int64) string {
	b := make([]byte, 0, 64)
	b = append(strconv.AppendInt(b, id, 10), ' ')
	b = append(strconv.AppendInt(b, token, 10), ' ')
	return string(append(strconv.AppendInt(b, version, 10), ' '))
}
