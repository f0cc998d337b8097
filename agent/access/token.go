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
}

// In returns the rights in a room.
func (g Grant) In(room string) Rights {
	if slices.Contains(g.Rooms, room) || slices.Contains(g.Rooms, AnyRoom) {
		return g.Rights
	}
	return 0
}

// Errors of tokens.
var (
	// ErrNoKeys is returned by Sign without keys.
	ErrNoKeys = errors.New("a token needs the LiveKit API key and secret; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")
	// ErrBadToken is returned by Verify for a token with another signature or purpose.
	ErrBadToken = errors.New("the token is not signed with this server's key, or was made for something else")
	// ErrExpired is returned by Verify for an expired token.
	ErrExpired = errors.New("the token has expired; ask for a new link")
)

// audience separates these tokens from LiveKit's tokens, which the same keys sign: neither is accepted for the other.
const audience = "touchline"

// Longest lists and names, so that a token fits a cookie.
const (
	maxRooms = 16
	maxToken = 3000 // bytes
)

// claims of a token (RFC 7519).
type claims struct {
	jwt.RegisteredClaims

	Rooms  []string `json:"rooms"`
	Rights []string `json:"rights"`
}

// Sign makes a token that is valid from now until g.Expires.
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
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: keys.APIKey, Subject: g.Name, Audience: jwt.ClaimStrings{audience},
			NotBefore: jwt.NewNumericDate(now.Add(-leeway)), ExpiresAt: jwt.NewNumericDate(g.Expires),
		},
		Rooms: g.Rooms, Rights: g.Rights.Names(),
	}).SignedString([]byte(keys.APISecret))
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	if len(token) > maxToken {
		return "", fmt.Errorf("rooms: their names make a token of %d bytes, more than the %d of a cookie; name fewer", len(token), maxToken)
	}
	return token, nil
}

// leeway is the tolerated difference between clocks.
const leeway = 30 * time.Second

// Verify returns the content of a token. The error is ErrExpired or ErrBadToken.
func Verify(keys Keys, token string, now time.Time) (Grant, error) {
	if keys.APIKey == "" || keys.APISecret == "" || len(token) > maxToken || strings.Count(token, ".") != 2 {
		return Grant{}, ErrBadToken
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return []byte(keys.APISecret), nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithAudience(audience), jwt.WithIssuer(keys.APIKey),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return now }))
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenInvalidAudience) && !errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return Grant{}, ErrExpired
	case err != nil:
		return Grant{}, ErrBadToken
	}
	rights, err := Parse(c.Rights)
	if err != nil {
		return Grant{}, ErrBadToken // of a later version
	}
	return Grant{Rooms: c.Rooms, Rights: rights, Name: c.Subject, Expires: c.ExpiresAt.Time}, nil
}
