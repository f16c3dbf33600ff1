package client

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// addresses makes of the URLs what is dialled, and of the user in them the header that
// shows it to the gateway.
func (cfg *Config) addresses() error {
	var user *url.Userinfo
	for i, raw := range cfg.URLs {
		u, err := parseURL(raw)
		switch {
		case err != nil:
			return err
		case u.User == nil:
		case user != nil && *u.User != *user:
			return errors.New("client: the URLs have different users; all are to be of one cluster, and one user is shown to all of its gateways")
		default:
			user = u.User
		}
		cfg.URLs[i] = dialled(u)
	}
	if user == nil {
		return nil
	}
	return cfg.authorize(user)
}

// authorize has the user of a URL shown with each upgrade, as Config.Header is.
func (cfg *Config) authorize(user *url.Userinfo) error {
	for name := range cfg.Header {
		if strings.EqualFold(name, "Authorization") {
			return errors.New("client: a URL has a user, and Config.Header an Authorization: give one of them")
		}
	}
	key, _ := user.Password()
	if key == "" {
		return errors.New("client: a user in a URL must be NAME:KEY, with an API key; the name may be any")
	}
	request := http.Request{Header: http.Header{}}
	maps.Copy(request.Header, cfg.Header)
	request.SetBasicAuth(user.Username(), key)
	cfg.Header = request.Header
	return nil
}

// secure reports whether an address was given that encrypts. What Header holds
// must then not travel in the clear.
func (cfg *Config) secure() bool {
	return slices.ContainsFunc(cfg.URLs, func(u string) bool { return strings.HasPrefix(u, "wss:") })
}

// ownerURL makes a WebSocket address of what a gateway wrote. A user in it is refused:
// only this client's own settings name its user.
func ownerURL(raw string) (string, error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	if u.User != nil {
		return "", fmt.Errorf("client: the URL of the gateway at %s has a user", u.Host)
	}
	return dialled(u), nil
}

// parseURL reads what a person or a gateway wrote. Its error does not show what may be
// a credential.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		if why, ok := errors.AsType[*url.Error](err); ok && !strings.Contains(raw, "@") {
			err = why.Err
		} else {
			err = errors.New("what stands before the @ is not NAME:KEY, or what is behind it not HOST:PORT")
		}
		return nil, fmt.Errorf("client: the URL cannot be read: %w", err)
	}
	switch u.Scheme {
	case "http", "ws", "https", "wss":
	default:
		return nil, fmt.Errorf("client: URL %q: the scheme must be ws, wss, http or https", shown(raw))
	}
	if u.Host == "" {
		return nil, fmt.Errorf("client: URL %q: a host is needed", shown(raw))
	}
	return u, nil
}

// shown is a URL without what may be a key.
func shown(raw string) string {
	if at := strings.LastIndexByte(raw, '@'); at >= 0 {
		return "…" + raw[at:]
	}
	return raw
}

// dialled is the WebSocket address of u, without a user: http stands for ws, https for
// wss, and no path for /ws.
func dialled(u *url.URL) string {
	address := *u
	address.User, address.Fragment, address.RawFragment = nil, "", ""
	address.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	if u.Path == "" || u.Path == "/" {
		address.Path, address.RawPath = "/ws", ""
	}
	return address.String()
}
