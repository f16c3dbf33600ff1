// Package access authenticates clients and decides what each may do.
//
// A Gate checks the credential of an HTTP request (an API key, a JSON Web Token, a
// ticket or a client certificate) and makes a Session of it, which a connection asks for
// rights and quota at each call.
//
// It promises:
//   - The Gate refuses a principal that is not in the rights file, and a principal has
//     only the rights written there. A change of the file, or the end of a credential,
//     applies to open Sessions too, within the times of Config.
//   - May, Ended and Quota of a Session do not block and ask no store.
//   - A wrong credential counts against its address: guessing is bounded, and so is the
//     number of credentials of one address that are checked at a time.
//   - No error, log line or audit line holds a secret.
//
// It does not promise that a revoked credential ends everywhere at once. It counts wrong
// credentials and quotas for one node only. It ends no connection; the holder of the
// Session must.
//
// The goroutines are those of the readers below it (rights, apikey, jwt, ticket); Gate.Stop
// ends them and waits. The only lock, of the table of addresses, is not held during calls
// of other packages.
//
// Read access.go, then gate.go. The decisions are in the packages beneath: rights, apikey,
// jwt, ticket and quota; audit records what was done.
package access
