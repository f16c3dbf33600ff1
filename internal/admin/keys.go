package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"noncegate/internal/access/apikey"
	"noncegate/internal/access/rights"
	"noncegate/nonce"
	"noncegate/wire"
)

// KeyView is an API key without its secret.
type KeyView struct {
	ID         string     `json:"id"`
	Principal  string     `json:"principal"`
	State      string     `json:"state"` // live, expired or revoked
	CreatedAt  wire.Time  `json:"createdAt"`
	ExpiresAt  *wire.Time `json:"expiresAt,omitempty"`
	RevokedAt  *wire.Time `json:"revokedAt,omitempty"`
	LastUsedAt *wire.Time `json:"lastUsedAt,omitempty"` // at the node that answers, since its start
	Key        string     `json:"key,omitempty"`        // once, where it was made
}

// ViewKey shows a key as it is at a moment of the store's clock.
func ViewKey(k apikey.Key, now time.Time) KeyView {
	v := KeyView{ID: k.ID, Principal: k.Principal, State: "live", CreatedAt: wire.Time(k.Created)}
	if k.Ended(now) != nil {
		v.State = "expired"
	}
	if !k.Expires.IsZero() {
		v.ExpiresAt = new(wire.Time(k.Expires))
	}
	if !k.Revoked.IsZero() {
		v.State, v.RevokedAt = "revoked", new(wire.Time(k.Revoked))
	}
	return v
}

// KeyList is the API keys of the store.
type KeyList struct {
	Keys []KeyView `json:"keys"`
}

// KeyOrder makes an API key.
type KeyOrder struct {
	Principal string `json:"principal"`
	TTL       string `json:"ttl,omitempty"` // how long it is good, such as 2160h; "" or 0: until it is revoked
	Because
}

// MadeKey is a key that was made.
type MadeKey struct {
	KeyView
	Foreseen
}

// RevokeOrder ends an API key.
type RevokeOrder struct {
	ID string `json:"id"`
	Because
}

// RevokedKey is a key that has ended.
type RevokedKey struct {
	KeyView
	Foreseen
}

// MaxKeyLifetime and MinKeyLifetime bound how long a key that ends by itself is good.
const (
	MaxKeyLifetime = 100 * 365 * 24 * time.Hour
	MinKeyLifetime = time.Minute
)

func (a *Server) noKeys() error {
	if a.cfg.Keys == nil {
		return &badQuestion{"the store keeps no API keys", http.StatusConflict}
	}
	return nil
}

func (a *Server) listKeys(ctx context.Context, _ None) (list KeyList, err error) {
	if err := a.noKeys(); err != nil {
		return list, err
	}
	all, err := a.cfg.Keys.Keys(ctx, 0)
	list.Keys = []KeyView{}
	for _, k := range all.Keys {
		v := ViewKey(k, all.Now)
		if used := a.keyUsed(k.ID); !used.IsZero() {
			v.LastUsedAt = new(wire.Time(used))
		}
		list.Keys = append(list.Keys, v)
	}
	return list, err
}

func (a *Server) keyUsed(id string) time.Time {
	if a.cfg.Gate == nil {
		return time.Time{}
	}
	return a.cfg.Gate.KeyUsed(id)
}

// createKey makes a key. Its predicate is the store's, but for the two bounds that a dry run can look at.
func (a *Server) createKey(ctx context.Context, q KeyOrder) (m MadeKey, err error) {
	if err := a.noKeys(); err != nil {
		return m, err
	}
	if err := rights.CheckPrincipal(q.Principal); err != nil {
		return m, &badQuestion{why: fmt.Sprintf("principal: %.80q %v", q.Principal, err)}
	}
	ttl, err := time.ParseDuration(cmp.Or(q.TTL, "0"))
	if err != nil || ttl != 0 && (ttl < MinKeyLifetime || ttl > MaxKeyLifetime) {
		return m, &badQuestion{why: fmt.Sprintf("ttl: %.40q must be a duration such as 2160h, of 1m to %v, or 0", q.TTL, MaxKeyLifetime)}
	}
	would := "an API key of " + q.Principal + " is made, good until it is revoked"
	if ttl != 0 {
		would = fmt.Sprintf("an API key of %s is made, good for %v", q.Principal, ttl)
	}
	m.foresee(q.Because, nil, "", "a key of "+q.Principal, would)
	if q.DryRun {
		return m, a.roomForKey(ctx, q.Principal)
	}
	text, request := apikey.Generate(q.Principal, ttl)
	made, err := a.cfg.Keys.CreateKey(ctx, request)
	if err != nil {
		return m, keyError(err, "made", request.ID)
	}
	m.KeyView = ViewKey(made, made.Created)
	m.Key = text
	return m, nil
}

// roomForKey asks what the store asks when it makes one.
func (a *Server) roomForKey(ctx context.Context, principal string) error {
	all, err := a.cfg.Keys.Keys(ctx, 0)
	if err != nil {
		return err
	}
	live := 0
	for _, k := range all.Keys {
		if k.Principal == principal && k.Ended(all.Now) == nil {
			live++
		}
	}
	return keyError(apikey.Room(len(all.Keys), live), "made", "")
}

func (a *Server) revokeKey(ctx context.Context, q RevokeOrder) (r RevokedKey, err error) {
	if err := a.noKeys(); err != nil {
		return r, err
	}
	if !apikey.IsID(q.ID) { // it may be the key, which is not to be repeated
		return r, &badQuestion{why: "id: must be that of an API key, of 16 characters"}
	}
	all, err := a.cfg.Keys.Keys(ctx, 0)
	if err != nil {
		return r, &notDone{err}
	}
	i := slices.IndexFunc(all.Keys, func(k apikey.Key) bool { return k.ID == q.ID })
	if i < 0 {
		return r, keyError(apikey.ErrUnknown, "revoked", q.ID)
	}
	r.KeyView = ViewKey(all.Keys[i], all.Now)
	was := r.KeyView
	if was.State == "revoked" {
		return r, &badQuestion{fmt.Sprintf("conflict: the API key %s was revoked at %s", q.ID, was.RevokedAt), http.StatusConflict}
	}
	r.foresee(q.Because, &Before{Key: &was}, was.State, "revoked",
		fmt.Sprintf("the API key %s of %s, which is %s, is not good any more, and the connections that it let in are closed",
			q.ID, was.Principal, was.State))
	if q.DryRun {
		return r, nil
	}
	revoked, err := a.cfg.Keys.RevokeKey(ctx, q.ID)
	if err != nil {
		return r, keyError(err, "revoked", q.ID)
	}
	r.KeyView = ViewKey(revoked, all.Now)
	if a.cfg.Gate != nil {
		a.cfg.Gate.Reload()
	}
	return r, nil
}

// keyError says whether a key was made or revoked.
func keyError(err error, what, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, apikey.ErrUnknown):
		return &badQuestion{"id: " + err.Error(), http.StatusNotFound}
	case nonce.OutcomeOf(err) == nonce.Unknown && !errors.Is(err, apikey.ErrTooManyLive):
		if _, ofStore := errors.AsType[*nonce.StoreError](err); ofStore {
			return fmt.Errorf("%w; whether the API key %s was %s is unknown: look at the keys", err, id, what)
		}
	}
	if _, ofStore := errors.AsType[*nonce.StoreError](err); ofStore {
		return &notDone{err}
	}
	return &badQuestion{err.Error(), http.StatusConflict}
}

// PrincipalView is a principal as the node that answers knows it.
type PrincipalView struct {
	Principal   string     `json:"principal"`
	Connections int        `json:"connections"` // to this node
	Holds       int        `json:"holds"`       // that this node handed out and counts for a bound
	Keys        int        `json:"keys"`        // live
	Quota       QuotaView  `json:"quota"`
	Rights      []RightsOn `json:"rights"`
	LastSeenAt  *wire.Time `json:"lastSeenAt,omitempty"` // when it was let in by an API key here; or now, if it is connected
}

// QuotaView is how much a principal may have; 0: any number.
type QuotaView struct {
	RequestsPerSecond   int `json:"requestsPerSecond"`
	Burst               int `json:"burst"`
	Connections         int `json:"connections"`
	Subscriptions       int `json:"subscriptions"`
	OpenHolds           int `json:"openHolds"`
	NewSignersPerMinute int `json:"newSignersPerMinute"`
}

// PrincipalList is the principals of the rights file, and others that are connected.
type PrincipalList struct {
	Principals []PrincipalView `json:"principals"`
}

func (a *Server) listPrincipals(ctx context.Context, _ None) (list PrincipalList, err error) {
	list.Principals = []PrincipalView{}
	if a.cfg.Gate == nil {
		return list, nil
	}
	all, err := a.cfg.Keys.Keys(ctx, 0)
	if err != nil {
		return list, err
	}
	inForce, now, at := a.cfg.Gate.Rights(), time.Now(), map[string]int{}
	for _, name := range inForce.Principals() {
		q := inForce.Quota(name)
		at[name] = len(list.Principals)
		list.Principals = append(list.Principals, PrincipalView{
			Principal: name, Rights: rightsOf(a.cfg.Gate, name), Holds: a.cfg.Service.OpenHolds(nonce.PrincipalOf(name)),
			Quota: QuotaView{int(q.RequestsPerSecond), q.Burst, q.Connections, q.Subscriptions, q.OpenHolds, q.NewSigners},
		})
	}
	see := func(p *PrincipalView, at time.Time) {
		if !at.IsZero() && (p.LastSeenAt == nil || time.Time(*p.LastSeenAt).Before(at)) {
			p.LastSeenAt = new(wire.Time(at))
		}
	}
	for _, c := range a.connected() {
		if i, ok := at[c.Principal]; ok {
			list.Principals[i].Connections++
			see(&list.Principals[i], now)
		}
	}
	for _, k := range all.Keys {
		if i, ok := at[k.Principal]; ok {
			if k.Ended(all.Now) == nil {
				list.Principals[i].Keys++
			}
			see(&list.Principals[i], a.keyUsed(k.ID))
		}
	}
	return list, nil
}
