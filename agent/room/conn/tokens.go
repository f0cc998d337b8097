package conn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	"github.com/twitchtv/twirp"

	"touchline/agent/access"
)

// tokenLife is the validity of a fresh token. The server renews the tokens of participants.
const tokenLife = time.Hour

// Keys sign access tokens.
type Keys = access.Keys

// Person is the participant of a token.
type Person struct {
	Room     string // must not be empty
	Identity string // unique in the room, must not be empty
	Name     string // display name, may be empty
	// Attributes are set from the start.
	Attributes map[string]string
	// Speaks lets a viewer publish a microphone, and nothing else.
	Speaks bool
	// Until bounds the validity of the token; zero for an hour.
	Until time.Time
	// Agents are dispatched to the room if this participant creates it.
	Agents []*livekit.RoomAgentDispatch
}

// AgentToken returns a token for the bot, with rights to publish, subscribe, send data and change its own attributes. Its kind is AGENT,
// so that front ends find the bot and the server forwards its legacy transcription.
func AgentToken(keys Keys, who Person) (string, error) {
	grant := &auth.VideoGrant{RoomJoin: true, Agent: true, Room: who.Room}
	grant.SetCanPublish(true)
	grant.SetCanSubscribe(true)
	grant.SetCanPublishData(true)
	grant.SetCanUpdateOwnMetadata(true)
	return mint(keys, who, livekit.ParticipantInfo_AGENT, grant)
}

// ViewerToken returns a token with rights to subscribe and send data, and to publish a microphone if the person Speaks.
func ViewerToken(keys Keys, who Person) (string, error) {
	grant := &auth.VideoGrant{RoomJoin: true, Room: who.Room}
	grant.SetCanPublish(who.Speaks)
	if who.Speaks {
		grant.SetCanPublishSources([]livekit.TrackSource{livekit.TrackSource_MICROPHONE})
	}
	grant.SetCanSubscribe(true)
	grant.SetCanPublishData(true)
	return mint(keys, who, livekit.ParticipantInfo_STANDARD, grant)
}

// CameraToken returns a token with rights to publish but not to subscribe, so that a camera does not count as a viewer.
func CameraToken(keys Keys, who Person) (string, error) {
	return PublisherToken(keys, who, false)
}

// PublisherToken is CameraToken with the optional right to change the participant's own attributes.
func PublisherToken(keys Keys, who Person, attributes bool) (string, error) {
	grant := &auth.VideoGrant{RoomJoin: true, Room: who.Room}
	grant.SetCanPublish(true)
	grant.SetCanPublishSources([]livekit.TrackSource{
		livekit.TrackSource_CAMERA, livekit.TrackSource_MICROPHONE,
		livekit.TrackSource_SCREEN_SHARE, livekit.TrackSource_SCREEN_SHARE_AUDIO,
	})
	grant.SetCanSubscribe(false)
	grant.SetCanPublishData(false)
	grant.SetCanUpdateOwnMetadata(attributes)
	return mint(keys, who, livekit.ParticipantInfo_STANDARD, grant)
}

func mint(keys Keys, who Person, kind livekit.ParticipantInfo_Kind, grant *auth.VideoGrant) (string, error) {
	if keys.APIKey == "" || keys.APISecret == "" {
		return "", errors.New("an access token needs the LiveKit API key and secret; " +
			"set LIVEKIT_API_KEY and LIVEKIT_API_SECRET, or give a ready token")
	}
	if who.Room == "" || who.Identity == "" {
		return "", fmt.Errorf("an access token needs a room and an identity, has room %q and identity %q",
			who.Room, who.Identity)
	}
	life := tokenLife
	if !who.Until.IsZero() {
		life = max(time.Second, min(life, time.Until(who.Until.Round(0))))
	}
	made := auth.NewAccessToken(keys.APIKey, keys.APISecret).
		SetIdentity(who.Identity).
		SetName(who.Name).
		SetKind(kind).
		SetAttributes(who.Attributes).
		SetVideoGrant(grant).
		SetValidFor(life)
	if len(who.Agents) > 0 {
		made.SetAgents(who.Agents...)
	}
	token, err := made.ToJWT()
	if err != nil {
		return "", fmt.Errorf("sign the access token: %w", err)
	}
	return token, nil
}

// Remove removes a participant from a room of a server. It may join again while it has a valid token.
func Remove(ctx context.Context, url string, keys Keys, room, identity string) error {
	token, err := auth.NewAccessToken(keys.APIKey, keys.APISecret).
		SetVideoGrant(&auth.VideoGrant{RoomAdmin: true, Room: room}).SetValidFor(time.Minute).ToJWT()
	if err == nil {
		ctx, err = twirp.WithHTTPRequestHeaders(ctx, http.Header{"Authorization": {"Bearer " + token}})
	}
	if err == nil {
		if rest, ok := strings.CutPrefix(url, "ws"); ok {
			url = "http" + rest
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		api := livekit.NewRoomServiceProtobufClient(url, client)
		_, err = api.RemoveParticipant(ctx, &livekit.RoomParticipantIdentity{Room: room, Identity: identity})
	}
	if err != nil {
		return fmt.Errorf("remove a participant: %w", err)
	}
	return nil
}

var (
	// ErrBadToken is returned for a token with another signature or that has expired.
	ErrBadToken = errors.New("the access token is not signed with this server's key or has expired")
	// ErrNoRight is returned for a valid token without the right for its use.
	ErrNoRight = errors.New("the access token does not allow this use of this room")
)

// VerifySender checks a token for sending a picture into a room from outside of LiveKit. It returns the token's participant.
func VerifySender(keys Keys, token, room string) (Person, error) {
	claims, err := Verify(keys, token)
	if err != nil {
		return Person{}, err
	}
	video := claims.Video
	if video == nil || !video.RoomJoin || video.Room != room || claims.Identity == "" ||
		!video.GetCanPublishSource(livekit.TrackSource_CAMERA) {
		return Person{}, ErrNoRight
	}
	return Person{
		Room: room, Identity: claims.Identity, Name: claims.Name, Attributes: claims.Attributes,
		Agents: claims.GetRoomConfiguration().GetAgents(),
	}, nil
}

// VerifyViewer checks a token for watching a room from outside of LiveKit. It returns the attributes in the token.
func VerifyViewer(keys Keys, token, room string) (attributes map[string]string, err error) {
	claims, err := Verify(keys, token)
	if err != nil {
		return nil, err
	}
	if video := claims.Video; video == nil || !video.RoomJoin || video.Room != room || !video.GetCanSubscribe() {
		return nil, fmt.Errorf("%w: it does not allow subscribing there", ErrNoRight)
	}
	return claims.Attributes, nil
}

// Verify returns the claims of a token that was signed with keys and is valid now.
func Verify(keys Keys, token string) (*auth.ClaimGrants, error) {
	v, err := auth.ParseAPIToken(token)
	if err != nil || v.APIKey() != keys.APIKey || keys.APIKey == "" || keys.APISecret == "" {
		return nil, ErrBadToken
	}
	_, claims, err := v.Verify(keys.APISecret)
	if err != nil {
		return nil, ErrBadToken
	}
	for part := range strings.SplitSeq(token, ".") { // one spelling of each token, as limits count by its text
		if raw, err := base64.RawURLEncoding.DecodeString(part); err != nil || base64.RawURLEncoding.EncodeToString(raw) != part {
			return nil, ErrBadToken
		}
	}
	return claims, nil
}

// ReadyToken is the content of a token from elsewhere. Its signature is not verified; only the server can do that.
type ReadyToken struct {
	Identity string
	Room     string
	// OwnAttributes allows changing its own attributes, Watch subscribing, and Voice, Picture and Sound publishing them.
	OwnAttributes, Watch, Voice, Picture, Sound bool
	// Agent allows sending text in the name of others.
	Agent bool
	// Expires is the end of the token; zero for never.
	Expires time.Time
	// Lost lists the missing rights and their effects in words.
	Lost []string
}

// ReadToken reads a ready token without verifying it.
func ReadToken(token string) (ReadyToken, error) {
	v, err := auth.ParseAPIToken(token)
	if err != nil {
		return ReadyToken{}, fmt.Errorf("read the LiveKit token: expected a JWT: %w", err)
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	var claims auth.ClaimGrants
	var life struct{ Exp float64 } // a NumericDate may have a fraction
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(payload, "="))
	if err == nil {
		err = errors.Join(json.Unmarshal(text, &claims), json.Unmarshal(text, &life))
	}
	if err != nil {
		return ReadyToken{}, fmt.Errorf("read the LiveKit token's claims: %w", err)
	}
	video := claims.Video
	if video == nil || !video.RoomJoin || video.Room == "" {
		return ReadyToken{}, errors.New("read the LiveKit token: it does not grant the right to join a room")
	}
	out := ReadyToken{
		Identity: v.Identity(), Room: video.Room, OwnAttributes: video.GetCanUpdateOwnMetadata(), Watch: video.GetCanSubscribe(),
		Voice:   video.GetCanPublishSource(livekit.TrackSource_MICROPHONE),
		Picture: video.GetCanPublishSource(livekit.TrackSource_CAMERA),
		Sound:   video.GetCanPublishSource(livekit.TrackSource_SCREEN_SHARE_AUDIO),
		Agent:   claims.GetParticipantKind() == livekit.ParticipantInfo_AGENT || video.Agent,
	}
	if life.Exp != 0 {
		out.Expires = time.Unix(int64(life.Exp), 0)
	}
	for _, right := range []struct {
		has  bool
		lost string
	}{
		{
			claims.GetParticipantKind() == livekit.ParticipantInfo_AGENT,
			"kind is not agent: front ends will not show an agent and the legacy transcription is not forwarded",
		},
		{out.Voice, "no right to publish a microphone: no voice"},
		{out.Picture, "no right to publish a camera: no delayed picture"},
		{out.Sound, "no right to publish a shared screen's sound: no sound of the camera"},
		{out.Watch, "no right to subscribe: nothing to watch"},
		{video.GetCanPublishData(), "no right to send data: no captions"},
		{out.OwnAttributes, "no right to update own attributes: the agent's state is not shown"},
	} {
		if !right.has {
			out.Lost = append(out.Lost, right.lost)
		}
	}
	return out, nil
}
