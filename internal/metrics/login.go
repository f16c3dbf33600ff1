package metrics

// Login is the kind of credential by which somebody was let in.
type Login string

// The kinds.
const (
	LoginKey         Login = "api_key"
	LoginToken       Login = "token"
	LoginTicket      Login = "ticket"
	LoginCertificate Login = "certificate"
)

var logins = []Login{LoginKey, LoginToken, LoginTicket, LoginCertificate}

// LoginRefusal is why a credential was not accepted.
type LoginRefusal string

// The reasons.
const (
	LoginMissing         LoginRefusal = "missing"       // no credential was given
	LoginMalformed       LoginRefusal = "malformed"     // what was given has no form of any
	LoginThrottled       LoginRefusal = "throttled"     // too many failed from this address; it was not looked at
	LoginUnavailable     LoginRefusal = "unavailable"   // who knows it does not answer
	LoginUnknown         LoginRefusal = "unknown"       // a key or ticket that is not there (any more)
	LoginSecret          LoginRefusal = "secret"        // the key is there, with another secret
	LoginExpired         LoginRefusal = "expired"       // it was good once
	LoginRevoked         LoginRefusal = "revoked"       // so was this
	LoginNotYetValid     LoginRefusal = "not_yet_valid" // a token of the future
	LoginAlgorithm       LoginRefusal = "algorithm"     // a token signed by a method that is not admitted, none among them
	LoginSignature       LoginRefusal = "signature"     // a token whose signature is wrong, or of a key nobody knows
	LoginIssuer          LoginRefusal = "issuer"        // a token of somebody else
	LoginAudience        LoginRefusal = "audience"      // a token for somebody else
	LoginClaims          LoginRefusal = "claims"        // a token without expiry or principal, or with a wrong one
	LoginCertificateName LoginRefusal = "certificate"   // a client certificate that names no principal
	LoginPrincipal       LoginRefusal = "principal"     // a good credential of somebody the rights file does not name
)

var loginRefusals = []LoginRefusal{
	LoginMissing, LoginMalformed, LoginThrottled, LoginUnavailable, LoginUnknown, LoginSecret, LoginExpired, LoginRevoked, LoginNotYetValid,
	LoginAlgorithm, LoginSignature, LoginIssuer, LoginAudience, LoginClaims, LoginCertificateName, LoginPrincipal,
}

// LoggedIn counts a credential that was accepted.
func (s *Set) LoggedIn(by Login) { s.loggedIn.add(by, 1) }

// LoginRefused counts a credential that was not.
func (s *Set) LoginRefused(why LoginRefusal) { s.loginRefused.add(why, 1) }
