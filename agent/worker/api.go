package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	"github.com/twitchtv/twirp"
)

// apiTimeout bounds one call of the server's API.
const apiTimeout = 3 * time.Second

// roomAPI calls the server's room and dispatch services. Each call signs a token of
// its own.
type roomAPI struct {
	key, secret string
	rooms       livekit.RoomService
	dispatches  livekit.AgentDispatchService
	idle        func()
	clock       *serverClock
}

// now returns the time by the server's clock.
func (a *roomAPI) now() time.Time { return a.clock.now(time.Now()) }

// addresses turns the server's URL into that of the API (http) and that of
// the worker's socket (ws).
func addresses(server, workerToken string) (api, socket string, err error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.User != nil {
		// The value may hold a password: it is not repeated.
		return "", "", errors.New("the LiveKit server's URL must be ws://HOST:PORT or wss://HOST, without a password; set LIVEKIT_URL")
	}
	var secure bool
	switch u.Scheme {
	case "wss", "https":
		secure = true
	case "ws", "http":
	default:
		return "", "", fmt.Errorf("the LiveKit server's URL must begin with ws:// or wss://, begins with %s://", u.Scheme)
	}
	u.RawQuery, u.Fragment = "", ""
	u.Path = strings.TrimRight(u.Path, "/")
	u.Scheme = map[bool]string{false: "http", true: "https"}[secure]
	api = u.String()
	u.Scheme = map[bool]string{false: "ws", true: "wss"}[secure]
	u.Path += "/agent"
	q := url.Values{"protocol": {"1"}}
	if workerToken != "" {
		q.Set("worker_token", workerToken)
	}
	u.RawQuery = q.Encode()
	return api, u.String(), nil
}

func newRoomAPI(base, key, secret string) *roomAPI {
	transport := &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second}
	clock := &serverClock{next: transport}
	client := &http.Client{Transport: clock, Timeout: apiTimeout}
	return &roomAPI{
		key: key, secret: secret,
		rooms:      livekit.NewRoomServiceProtobufClient(base, client),
		dispatches: livekit.NewAgentDispatchServiceProtobufClient(base, client),
		idle:       transport.CloseIdleConnections,
		clock:      clock,
	}
}

func (a *roomAPI) with(ctx context.Context, grant *auth.VideoGrant) (context.Context, error) {
	token, err := auth.NewAccessToken(a.key, a.secret).SetVideoGrant(grant).SetValidFor(time.Minute).ToJWT()
	if err != nil {
		return nil, fmt.Errorf("sign a token for the API: %w", err)
	}
	return twirp.WithHTTPRequestHeaders(ctx, http.Header{"Authorization": {"Bearer " + token}})
}

func (a *roomAPI) admin(ctx context.Context, room string) (context.Context, error) {
	return a.with(ctx, &auth.VideoGrant{RoomAdmin: true, Room: room})
}

// list returns all rooms, or those of some names.
func (a *roomAPI) list(ctx context.Context, names ...string) ([]*livekit.Room, error) {
	ctx, err := a.with(ctx, &auth.VideoGrant{RoomList: true})
	if err != nil {
		return nil, err
	}
	res, err := a.rooms.ListRooms(ctx, &livekit.ListRoomsRequest{Names: names})
	if err != nil {
		return nil, fmt.Errorf("list rooms: %w", err)
	}
	return res.GetRooms(), nil
}

// dispatched returns the dispatches of one room for one agent name.
func (a *roomAPI) dispatched(ctx context.Context, room, agentName string) ([]*livekit.AgentDispatch, error) {
	ctx, err := a.admin(ctx, room)
	if err != nil {
		return nil, err
	}
	res, err := a.dispatches.ListDispatch(ctx, &livekit.ListAgentDispatchRequest{Room: room})
	if err != nil {
		return nil, fmt.Errorf("list dispatches: %w", err)
	}
	var ours []*livekit.AgentDispatch
	for _, d := range res.GetAgentDispatches() {
		if d.GetAgentName() == agentName {
			ours = append(ours, d)
		}
	}
	return ours, nil
}

// participants returns the participants of a room.
func (a *roomAPI) participants(ctx context.Context, room string) ([]*livekit.ParticipantInfo, error) {
	ctx, err := a.admin(ctx, room)
	if err != nil {
		return nil, err
	}
	res, err := a.rooms.ListParticipants(ctx, &livekit.ListParticipantsRequest{Room: room})
	if err != nil {
		return nil, fmt.Errorf("list participants: %w", err)
	}
	return res.GetParticipants(), nil
}

// present reports whether a participant with this identity is in the room.
func (a *roomAPI) present(ctx context.Context, room, identity string) (bool, error) {
	ctx, err := a.admin(ctx, room)
	if err != nil {
		return false, err
	}
	_, err = a.rooms.GetParticipant(ctx, &livekit.RoomParticipantIdentity{Room: room, Identity: identity})
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a participant: %w", err)
	}
	return true, nil
}

// remove removes a participant from a room.
func (a *roomAPI) remove(ctx context.Context, room, identity string) error {
	ctx, err := a.admin(ctx, room)
	if err != nil {
		return err
	}
	_, err = a.rooms.RemoveParticipant(ctx, &livekit.RoomParticipantIdentity{Room: room, Identity: identity})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("remove a participant: %w", err)
	}
	return nil
}

// dispatch creates a dispatch and returns its id.
func (a *roomAPI) dispatch(ctx context.Context, req *livekit.CreateAgentDispatchRequest) (string, error) {
	ctx, err := a.admin(ctx, req.GetRoom())
	if err != nil {
		return "", err
	}
	d, err := a.dispatches.CreateDispatch(ctx, req)
	if err != nil {
		return "", fmt.Errorf("create a dispatch: %w", err)
	}
	return d.GetId(), nil
}

// undispatch deletes a dispatch; one that is gone already is no error.
func (a *roomAPI) undispatch(ctx context.Context, room, id string) error {
	ctx, err := a.admin(ctx, room)
	if err != nil {
		return err
	}
	_, err = a.dispatches.DeleteDispatch(ctx, &livekit.DeleteAgentDispatchRequest{Room: room, DispatchId: id})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete a dispatch: %w", err)
	}
	return nil
}

func isNotFound(err error) bool {
	te, ok := errors.AsType[twirp.Error](err)
	return ok && te.Code() == twirp.NotFound
}
