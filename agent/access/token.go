package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"touchline/internal/check"
	"touchline/internal/redact"
)

// Keys sign tokens: the API key and secret of the LiveKit server, which sign its own tokens too.
type Keys struct {
	APIKey, APISecret string
	// E2EE are the keys of end-to-end encryption, as in the variable TOUCHLINE_AGENT_E2EE_KEY. They sign nothing.
	E2EE redact.Secret
	// Generation of the links: those of another one are not valid.
	Generation string
	// Links of the process; nil for none that are revoked.
	Links *Links
}

// AnyRoom stands for all rooms in a Grant.
const AnyRoom = "*"

// Bounds of a token's life.
const (
	MinLife = time.Minute
	MaxLife = 366 * 24 * time.Hour
)

// Grant is the content of a token.
type Grant struct {
	// Rooms that the rights are for; AnyRoom for all.
	Rooms  []string
	Rights Rights
	// Name of the person, for the page and the log; may be empty.
	Name string
	// Expires is when the token ends.
	Expires time.Time
	// Links are the ids of the links that the token's validity depends on: its own, then those of the holders that made it. Sign takes
	// the latter.
	Links []string
}

// In returns the rights in a room.
func (g Grant) In(room string) Rights {
	if slices.Contains(g.Rooms, room) || slices.Contains(g.Rooms, AnyRoom) {
		return g.Rights
	}
	return 0
}

// Root returns the id of the link that all others of the grant come from, which has their bounds together; "" for none.
func (g Grant) Root() string {
	if len(g.Links) == 0 {
		return ""
	}
	return g.Links[len(g.Links)-1]
}

// Errors of tokens.
var (
	// ErrNoKeys is returned by Sign without keys.
	ErrNoKeys = errors.New("a token needs the LiveKit API key and secret; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")
	// ErrBadToken is returned by Verify for a token with another signature or purpose.
	ErrBadToken = errors.New("the token is not signed with this server's key, or was made for something else")
	// ErrExpired is returned by Verify for an expired token.
	ErrExpired = errors.New("the token has expired; ask for a new link")
	// ErrRevoked is returned by Verify for the token of a revoked link, and of one that its holder made.
	ErrRevoked = errors.New("this link was revoked; ask for a new one")
)

// audience separates these tokens from LiveKit's tokens, which the same keys sign: neither is accepted for the other.
const audience = "touchline"

// audience of the tokens of the links' generation.
func (k Keys) audience() string {
	if k.Generation == "" {
		return audience
	}
	return audience + "/" + k.Generation
}

// Mark returns the mark of a LiveKit token by links, for Marked.
func (k Keys) Mark(links []string) string { return k.Generation + "/" + strings.Join(links, ",") }

// Marked returns the links in a mark, or ErrRevoked if they are of another generation or revoked.
func (k Keys) Marked(mark string) ([]string, error) {
	at := strings.LastIndex(mark, "/")
	links := strings.Split(mark[at+1:], ",")
	if at < 0 || mark[:at] != k.Generation || k.Links.Revoked(links) {
		return nil, ErrRevoked
	}
	return links, nil
}

// Longest lists and names, so that a token fits a cookie.
const (
	maxRooms = 16
	maxDepth = 8    // links by which a link was made
	maxToken = 3000 // bytes
)

// claims of a token (RFC 7519).
type claims struct {
	jwt.RegisteredClaims

	Rooms  []string `json:"rooms"`
	Rights []string `json:"rights"`
	Makers []string `json:"makers,omitempty"`
}

// Sign makes a token that is valid until g.Expires, also if the clock is set back meanwhile, by at most a day.
func Sign(keys Keys, g Grant, now time.Time) (string, error) {
	if keys.APIKey == "" || keys.APISecret == "" {
		return "", ErrNoKeys
	}
	if life := g.Expires.Sub(now); life < MinLife || life > MaxLife {
		return "", fmt.Errorf("expiry: must be between %v and %d days from now, is %v", MinLife, int(MaxLife.Hours()/24), life.Round(time.Second))
	}
	if g.Rights == 0 || !AllInRoom.Allow(g.Rights) {
		return "", fmt.Errorf("rights: must be of %s, are %q", AllInRoom, g.Rights)
	}
	if len(g.Rooms) == 0 || len(g.Rooms) > maxRooms {
		return "", fmt.Errorf("rooms: must be 1 to %d names, are %d", maxRooms, len(g.Rooms))
	}
	for _, room := range g.Rooms {
		if !check.Name(room) {
			return "", fmt.Errorf("room %.40q: must be 1 to 128 printable characters", room)
		}
	}
	if g.Name != "" && !check.Name(g.Name) {
		return "", fmt.Errorf("name %.40q: must be at most 128 printable characters", g.Name)
	}
	if len(g.Links) > maxDepth {
		keys.Links.refuse(func(r *Refused) { r.Deep++ })
		return "", fmt.Errorf("link: made by the holder of a link, %d times over; ask one of the first %d for a link", len(g.Links), maxDepth)
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: keys.APIKey, Subject: g.Name, Audience: jwt.ClaimStrings{keys.audience()},
			NotBefore: jwt.NewNumericDate(now.Add(-setBack)), ExpiresAt: jwt.NewNumericDate(g.Expires),
		},
		Rooms: g.Rooms, Rights: g.Rights.Names(), Makers: g.Links,
	}).SignedString([]byte(keys.APISecret))
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	if len(token) > maxToken {
		return "", fmt.Errorf("rooms: their names make a token of %d bytes, more than the %d of a cookie; name fewer", len(token), maxToken)
	}
	return token, nil
}

// setBack is by how much the clock may be set back without ending the links that it made.
const setBack = 24 * time.Hour

// Verify returns the content of a token. The error is ErrExpired, ErrRevoked or ErrBadToken.
func Verify(keys Keys, token string, now time.Time) (Grant, error) {
	if keys.APIKey == "" || keys.APISecret == "" || len(token) > maxToken || strings.Count(token, ".") != 2 {
		return Grant{}, ErrBadToken
	}
	if strings.ContainsAny(token, "\r\n") { // with strict decoding: one spelling of each token, as its id is a hash of its text
		return Grant{}, ErrBadToken
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return []byte(keys.APISecret), nil },
		jwt.WithStrictDecoding(), jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithAudience(keys.audience()),
		jwt.WithIssuer(keys.APIKey), jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now }))
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenInvalidAudience) && !errors.Is(err, jwt.ErrTokenInvalidIssuer):
		keys.Links.refuse(func(r *Refused) { r.Expired++ })
		return Grant{}, ErrExpired
	case err != nil:
		return Grant{}, ErrBadToken
	}
	rights, err := Parse(c.Rights)
	if err != nil {
		return Grant{}, ErrBadToken // of a later version
	}
	links := append([]string{linkID(token)}, c.Makers...)
	if keys.Links.Revoked(links) {
		keys.Links.refuse(func(r *Refused) { r.Revoked++ })
		return Grant{}, ErrRevoked
	}
	return Grant{Rooms: c.Rooms, Rights: rights, Name: c.Subject, Expires: c.ExpiresAt.Time, Links: links}, nil
}
