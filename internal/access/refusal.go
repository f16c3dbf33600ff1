package access

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"noncegate/internal/access/apikey"
	"noncegate/internal/access/jwt"
	"noncegate/internal/access/ticket"
)

// Refusal is the error of a Gate. Its text is for the log; what the client may be told
// is in Answer.
type Refusal struct {
	// Reason is the word for logs and metrics.
	Reason LoginRefusal
	err    error // wraps one of the errors of a credential
}

// Error implements error.
func (e *Refusal) Error() string { return e.err.Error() }

// Unwrap returns the error that wraps one of the errors of a credential.
func (e *Refusal) Unwrap() error { return e.err }

func refuse(reason LoginRefusal, kind error, detail any) *Refusal {
	if detail == nil {
		return &Refusal{reason, kind}
	}
	return &Refusal{reason, fmt.Errorf("%w: %v", kind, detail)}
}

// refusals is what the errors of the packages below are called here. The first that
// fits counts.
var refusals = []struct {
	err    error
	reason LoginRefusal
	kind   error
}{
	{apikey.ErrFormat, LoginMalformed, ErrInvalid},
	{apikey.ErrUnknown, LoginUnknown, ErrInvalid},
	{apikey.ErrSecret, LoginSecret, ErrInvalid},
	{apikey.ErrExpired, LoginExpired, ErrExpired},
	{apikey.ErrRevoked, LoginRevoked, ErrRevoked},
	{apikey.ErrUnavailable, LoginUnavailable, ErrUnavailable},
	{jwt.ErrMalformed, LoginMalformed, ErrInvalid},
	{jwt.ErrAlgorithm, LoginAlgorithm, ErrInvalid},
	{jwt.ErrSignature, LoginSignature, ErrInvalid},
	{jwt.ErrIssuer, LoginIssuer, ErrInvalid},
	{jwt.ErrAudience, LoginAudience, ErrInvalid},
	{jwt.ErrExpired, LoginExpired, ErrExpired},
	{jwt.ErrNotYetValid, LoginNotYetValid, ErrInvalid},
	{jwt.ErrClaims, LoginClaims, ErrInvalid},
	{jwt.ErrUnavailable, LoginUnavailable, ErrUnavailable},
	{ticket.ErrFormat, LoginMalformed, ErrInvalid},
	{ticket.ErrUnknown, LoginUnknown, ErrInvalid},
	{ticket.ErrUnavailable, LoginUnavailable, ErrUnavailable},
}

// refusalOf translates an error of a package below. One that is not in the table says
// nothing about the credential.
func refusalOf(err error) *Refusal {
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return refuse(known.reason, known.kind, err)
		}
	}
	return refuse(LoginUnavailable, ErrUnavailable, err)
}

// Answer tells the client that sent r in HTTP that it is not let in: the status, the headers that
// go with it, and the sentence, which names no more than the errors of a credential do.
func Answer(w http.ResponseWriter, r *http.Request, err error) (status int, said string) {
	for _, public := range []struct {
		err    error
		status int
		retry  int // seconds; 0: trying again does not help
	}{
		{ErrUnavailable, http.StatusServiceUnavailable, 1},
		{ErrThrottled, http.StatusTooManyRequests, 60},
		{ErrMissing, http.StatusUnauthorized, 0},
		{ErrAmbiguous, http.StatusUnauthorized, 0},
		{ErrExpired, http.StatusUnauthorized, 0},
		{ErrRevoked, http.StatusUnauthorized, 0},
		{ErrInvalid, http.StatusUnauthorized, 0},
	} {
		if !errors.Is(err, public.err) {
			continue
		}
		if public.status == http.StatusUnauthorized {
			challenge(w.Header(), r)
		}
		if public.retry > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(public.retry))
		}
		return public.status, public.err.Error()
	}
	w.Header().Set("Retry-After", "1")
	return http.StatusServiceUnavailable, ErrUnavailable.Error()
}

// challenge names the schemes that are understood. A page is not offered Basic: its
// browser would ask the user for a name and a password, keep them, and send them with
// what other pages ask for.
func challenge(h http.Header, r *http.Request) {
	h.Set("WWW-Authenticate", `Bearer realm="noncegate"`)
	if r.Header.Get("Origin") == "" {
		h.Add("WWW-Authenticate", `Basic realm="noncegate", charset="UTF-8"`)
	}
}
