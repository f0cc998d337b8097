package bot

import (
	"crypto/rand"
	"errors"
	"fmt"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
)

// minter makes access tokens for the page's visitors.
type minter struct {
	keys  conn.Keys
	room  string
	agent string // the bot's identity
}

// Mint implements console.Tokens.
func (m *minter) Mint(role, name string, by access.Grant) (console.Grant, error) {
	if m.keys.APIKey == "" {
		return console.Grant{}, errors.New("no LiveKit API key: viewers cannot join; set LIVEKIT_API_KEY and LIVEKIT_API_SECRET")
	}
	who := conn.Person{Room: m.room, Identity: role + "-" + rand.Text()[:10], Name: name, Until: by.Expires}
	var token string
	var err error
	switch role {
	case "viewer":
		who.Attributes, who.Speaks = control.Attributes(m.keys, by), by.Rights.Allow(access.Instruct)
		token, err = conn.ViewerToken(m.keys, who)
	case "camera":
		by.Rights = 0
		who.Attributes = control.Attributes(m.keys, by)
		token, err = conn.CameraToken(m.keys, who)
	default:
		return console.Grant{}, fmt.Errorf("role %q: must be viewer or camera", role)
	}
	if err != nil {
		return console.Grant{}, fmt.Errorf("mint a token: %w", err)
	}
	return console.Grant{Token: token, Identity: who.Identity, Room: m.room, Agent: m.agent}, nil
}
