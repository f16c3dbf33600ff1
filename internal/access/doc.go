// Package access says who a client is and what it may touch.
//
// A Gate looks at the credential of an HTTP request (an API key, a JSON Web Token, a
// ticket or a client certificate) and makes a Session of it, which a connection asks for
// rights and quota at each call.
//
// It promises:
//   - Whoever is not in the rights file is not let in, and nobody has a right that is not
//     written there. A change of the file, or the end of a credential, counts for open
//     Sessions too, within the times of Config.
//   - May, Ended and Quota of a Session do not block and ask no store.
//   - A wrong credential costs its address: guessing is bounded, and so are the credentials
//     of one address that are looked at at a time.
//   - No error, log line or audit line holds a secret.
//
// It does not promise that what was revoked ends everywhere at once, nor that the counts
// of wrong credentials and quotas are those of more than one node. It ends no connection:
// that is for whoever holds the Session.
//
// The goroutines are those of the readers below it (rights, apikey, jwt, ticket); Gate.Stop
// ends them and waits. The only lock, of the table of addresses, is held for no call of
// others.
//
// Read access.go, then gate.go. What decides is in the packages beneath: rights, apikey,
// jwt, ticket and quota; audit writes down what was done.
package access
