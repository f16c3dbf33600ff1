//go:build unix

package bench

import "noncegate/scripts/loadtest/traffic"

// The gateway has two hearts until the older one is deleted: today's, and one in which all
// that lives of a signer is one row. With Config.Heart "new" the gateways are started on
// that, and there are rows that compare it with today's in the same rounds.
const (
	newHeart    = "new"
	todaysHeart = "today's heart" // a side's name
)

// heartFlags are the settings of a gateway for a heart.
func heartFlags(heart string) []string {
	if heart == "" {
		return nil
	}
	return []string{"--heart", heart}
}

// onTodays is a side that is measured on today's heart in any case.
func onTodays(name string, l traffic.Load, st stored) side {
	return side{name: name, server: gatewayPostgres, load: l, stored: st, todays: true}
}
