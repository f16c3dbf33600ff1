package access

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
)

// login is the kind of credential by which a client was let in.
type login string

// The kinds.
const (
	loginKey         login = "api_key"
	loginToken       login = "token"
	loginTicket      login = "ticket"
	loginCertificate login = "certificate"
)

var logins = []login{loginKey, loginToken, loginTicket, loginCertificate}

// LoginRefusal is why a credential was not accepted.
type LoginRefusal string

// The reasons.
const (
	LoginMissing         LoginRefusal = "missing"       // no credential was given
	LoginMalformed       LoginRefusal = "malformed"     // what was given has no form of any
	LoginThrottled       LoginRefusal = "throttled"     // too many failed from this address; it was not looked at
	LoginUnavailable     LoginRefusal = "unavailable"   // the server that knows it does not answer
	LoginUnknown         LoginRefusal = "unknown"       // a key or ticket that is not there (any more)
	LoginSecret          LoginRefusal = "secret"        // the key is there, with another secret
	LoginExpired         LoginRefusal = "expired"       // it was good once
	LoginRevoked         LoginRefusal = "revoked"       // so was this
	LoginNotYetValid     LoginRefusal = "not_yet_valid" // a token of the future
	LoginAlgorithm       LoginRefusal = "algorithm"     // a token signed by a method that is not admitted, none among them
	LoginSignature       LoginRefusal = "signature"     // a token whose signature is wrong, or of an unknown key
	LoginIssuer          LoginRefusal = "issuer"        // a token of another issuer
	LoginAudience        LoginRefusal = "audience"      // a token for another audience
	LoginClaims          LoginRefusal = "claims"        // a token without expiry or principal, or with a wrong one
	LoginCertificateName LoginRefusal = "certificate"   // a client certificate that names no principal
	LoginPrincipal       LoginRefusal = "principal"     // a good credential of a principal that the rights file does not name
)

var loginRefusals = []LoginRefusal{
	LoginMissing, LoginMalformed, LoginThrottled, LoginUnavailable, LoginUnknown, LoginSecret, LoginExpired, LoginRevoked, LoginNotYetValid,
	LoginAlgorithm, LoginSignature, LoginIssuer, LoginAudience, LoginClaims, LoginCertificateName, LoginPrincipal,
}

// counters are what a Gate counts.
type counters struct {
	loggedIn metrics.Family[login]
	refused  metrics.Family[LoginRefusal]
}

func newCounters(reg prometheus.Registerer) *counters {
	return &counters{
		loggedIn: metrics.NewFamily(reg, "logins_total", "credential", "Credentials accepted, at the upgrade or for a ticket.", logins...),
		refused:  metrics.NewFamily(reg, "logins_refused_total", "reason", "Credentials not accepted, at the upgrade or for a ticket, by why.", loginRefusals...),
	}
}

const (
	reloadFailed     = "rights_reload_failed"
	reloadFailedHelp = "1 while the rights file cannot be used and an earlier one is in force. 0 without --rights."
)

// WithoutRights registers what dashboards and alerts look at where there is no rights
// file: no client logs in, and with nothing to read, nothing fails.
func WithoutRights(reg prometheus.Registerer) {
	newCounters(reg)
	metrics.Gauge(reg, reloadFailed, reloadFailedHelp, func() float64 { return 0 })
}

// register makes the counters of the Gate, and the gauges of its rights.
func (g *Gate) register(reg prometheus.Registerer) {
	g.counters = newCounters(reg)
	metrics.Gauge(reg, reloadFailed, reloadFailedHelp, func() float64 {
		if _, err := g.rights.State(); err != nil {
			return 1
		}
		return 0
	})
	metrics.Gauge(reg, "rights_age_seconds", "Time since the rights in force were last found to be those of the rights file.", func() float64 {
		good, _ := g.rights.State()
		return time.Since(good).Seconds()
	})
}
