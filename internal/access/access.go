package access

import (
	"errors"
	"net/http"
	"time"

	"noncegate/internal/access/rights"
)

// Right is something a principal may do with a signer. Rights are bits; String names
// them as the rights file does.
type Right = rights.Right

// The rights. A principal has none but those that it was given.
const (
	RightAllocate  = rights.Allocate  // nonce_allocate
	RightMark      = rights.Mark      // nonce_markUsed, nonce_markSigned, nonce_markRecyclable and nonce_extend of what it holds itself
	RightMarkAny   = rights.MarkAny   // the same of what others hold
	RightRead      = rights.Read      // nonce_status, nonce_list
	RightSubscribe = rights.Subscribe // nonce_subscribe
	RightAdmin     = rights.Admin     // nonce_setFloor
	RightRepair    = rights.Repair    // nonce_repair
	RightChain     = rights.Chain     // reading through the nodes of a chain, by /eth/CHAIN; it is asked for with ChainOf
)

// ChainOf is what to ask for the right chain with: the beginning of all signers of a chain,
// such as eip155:1.
func ChainOf(chain string) string { return rights.ChainOf(chain) }

// Quota is how much a principal may have. 0 is no limit.
type Quota = rights.Quota

// Session is what one connection was let in as. Its methods may be called by any
// goroutine at any time, and do not block. A nil *Session is that of a gateway
// without authentication: it may everything and never ends.
type Session struct {
	// Principal is the name under which rights and quotas are given.
	Principal string
	// Credential tells this credential from others of the principal, without its
	// secret: key: and the id of an API key, token: and that of a token, certificate:
	// and its serial number. It is for logs.
	Credential string
	// Expires is when the credential ends by itself; zero: never.
	Expires time.Time

	may   func(right Right, signer string) bool
	ended func(now time.Time) error
	quota func() Quota // nil: no limits
}

// NewSession makes a Session of what an Authenticator knows. may is asked at each
// call and must be quick; ended returns nil, ErrExpired or ErrRevoked.
func NewSession(principal, credential string, expires time.Time, may func(Right, string) bool, ended func(time.Time) error) *Session {
	return &Session{Principal: principal, Credential: credential, Expires: expires, may: may, ended: ended}
}

// WithQuota gives the Session a quota, which is asked at each call and must be quick,
// before the Session is used. It returns s.
func (s *Session) WithQuota(quota func() Quota) *Session {
	s.quota = quota
	return s
}

// May reports whether the principal has a right on a signer, by the rights that are
// in force now.
func (s *Session) May(right Right, signer string) bool { return s == nil || s.may(right, signer) }

// SeesHolders reports whether the client is told which other principals hold nonces of a signer. Clients with a right to
// act on them are.
func (s *Session) SeesHolders(signer string) bool {
	return s.May(RightMarkAny, signer) || s.May(RightRepair, signer) || s.May(RightAdmin, signer)
}

// Ended returns why the credential is not good any more at now: nil while it is,
// else ErrExpired or ErrRevoked.
func (s *Session) Ended(now time.Time) error {
	if s == nil {
		return nil
	}
	return s.ended(now)
}

// Quota returns what the principal may have, by the quotas that are in force now.
func (s *Session) Quota() Quota {
	if s == nil || s.quota == nil {
		return Quota{}
	}
	return s.quota()
}

// Errors of a credential. What a client is told names no more than these.
var (
	ErrMissing = errors.New("no credential was given")
	// ErrAmbiguous: which of several headers is meant cannot be known.
	ErrAmbiguous = errors.New("more than one Authorization header was given; send one, with Bearer or Basic")
	ErrInvalid   = errors.New("the credential is not valid")
	ErrExpired   = errors.New("the credential has expired")
	ErrRevoked   = errors.New("the credential was revoked")
	// ErrThrottled: so many credentials from this address were wrong that this one was
	// not looked at.
	ErrThrottled = errors.New("too many credentials from this address were wrong; try again in a minute")
	// ErrUnavailable: it cannot be said now whether the credential is good.
	ErrUnavailable = errors.New("the credential cannot be checked now")
)

// Authenticator lets clients in.
type Authenticator interface {
	// Authenticate says which principal sent an HTTP request. It may ask a store, and ends with
	// the request's context. Its errors wrap one of those above; the rest of their
	// text is for the log, and holds no secret.
	Authenticate(r *http.Request) (*Session, error)
}
