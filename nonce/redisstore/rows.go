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
//	R<attempt> <token> <reason>
//	C<attempt> <token> <version that consumed it> h<hash, 32 bytes><reason>
//	C<attempt> <token> <version that consumed it> -<reason>
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

func heldRow(attempt, token int64, holder nonce.Principal, until time.Time) string {
	return "H" + num(attempt) + " " + num(token) + of(holder) + " " + num(until.UnixMicro())
}

func releasedRow(attempt, token int64, holder nonce.Principal, reason string) string {
	return "R" + num(attempt) + " " + num(token) + of(holder) + " " + reason
}

// of is what stands behind the token.
func of(holder nonce.Principal) string {
	if holder == 0 {
		return ""
	}
	return "@" + strconv.FormatUint(uint64(holder), 16)
}

// consumedRow is the row without its attempt.
func consumedRow(token, version int64, holder nonce.Principal, hash nonce.TxHash, reason string) string {
	b := make([]byte, 0, 80+len(reason))
	b = strconv.AppendInt(append(b, ' '), token, 10)
	b = append(b, of(holder)...)
	b = strconv.AppendInt(append(b, ' '), version, 10)
	if hash == (nonce.TxHash{}) {
		b = append(b, " -"...)
	} else {
		b = append(append(b, " h"...), hash[:]...)
	}
	return string(append(b, reason...))
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
	if whole && ok {
		row.Token, row.Holder, ok = parseToken(token)
	}
	if !whole || !ok || !parseEnd(&row, rest) {
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

// parseEnd reads what follows the token.
func parseEnd(row *nonce.Row, rest string) bool {
	switch row.Status {
	case nonce.Held:
		until, ok := parseNum(rest)
		row.HeldUntil = time.UnixMicro(until)
		return ok
	case nonce.Released:
		row.Reason = rest
		return true
	}
	version, rest, _ := strings.Cut(rest, " ")
	if _, ok := parseNum(version); !ok || rest == "" {
		return false
	}
	switch {
	case rest[0] == '-':
		row.Reason = rest[1:]
	case rest[0] == 'h' && len(rest) > len(row.TxHash):
		row.Reason = rest[1+copy(row.TxHash[:], rest[1:]):]
	default:
		return false
	}
	return true
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
