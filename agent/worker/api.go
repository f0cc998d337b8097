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
	"github.com/rs/zerolog"
	"github.com/twitchtv/twirp"
)

// apiTimeout bounds one call of the server's API.
const apiTimeout = 3 * time.Second

// roomAPI calls the server's room and dispatch services for one agent. Each call signs a token of
// its own.
type roomAPI struct {
	key, secret       string
	agent, deployment string
	log               zerolog.Logger

	rooms      livekit.RoomService
	dispatches livekit.AgentDispatchService
	idle       func()
	clock      *serverClock
}

// now returns the time by the server's clock.
func (a *roomAPI) now() time.Time { return a.clock.now(time.Now()) }

// addresses returns the URLs of the server's API (http) and of the worker's socket (ws).
func addresses(server, workerToken string) (api, socket string, err error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.User != nil {
		// The value may hold a password: it is not repeated.
		return "", "", errors.New("the LiveKit server's URL must be ws://HOST:PORT or wss://HOST, without a password; set LIVEKIT_URL")
	}
	secure := ""
	switch u.Scheme {
	case "wss", "https":
		secure = "s"
	case "ws", "http":
	default:
		return "", "", fmt.Errorf("the LiveKit server's URL must begin with ws:// or wss://, begins with %s://", u.Scheme)
	}
	u.RawQuery, u.Fragment = "", ""
	u.Path = strings.TrimRight(u.Path, "/")
	u.Scheme = "http" + secure
	api = u.String()
	u.Scheme = "ws" + secure
	u.Path += "/agent"
	q := url.Values{"protocol": {"1"}}
	if workerToken != "" {
		q.Set("worker_token", workerToken)
	}
	u.RawQuery = q.Encode()
	return api, u.String(), nil
}

func newRoomAPI(base string, o Options) *roomAPI {
	transport := &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second}
	clock := &serverClock{next: transport}
	client := &http.Client{Transport: clock, Timeout: apiTimeout}
	return &roomAPI{
		key: o.APIKey, secret: o.APISecret, agent: o.AgentName, deployment: o.Deployment, log: o.Log,
		rooms:      livekit.NewRoomServiceProtobufClient(base, client),
		dispatches: livekit.NewAgentDispatchServiceProtobufClient(base, client),
		idle:       transport.CloseIdleConnections,
		clock:      clock,
	}
}

// call calls a method of the API with a new token that carries grant. Errors begin with what.
func call[Q, R any](
	ctx context.Context, a *roomAPI, grant *auth.VideoGrant, what string, method func(context.Context, Q) (R, error), req Q,
) (res R, err error) {
	token, err := auth.NewAccessToken(a.key, a.secret).SetVideoGrant(grant).SetValidFor(time.Minute).ToJWT()
	if err == nil {
		ctx, err = twirp.WithHTTPRequestHeaders(ctx, http.Header{"Authorization": {"Bearer " + token}})
	}
	if err == nil {
		res, err = method(ctx, req)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return res, err
}

func admin(room string) *auth.VideoGrant { return &auth.VideoGrant{RoomAdmin: true, Room: room} }

// list returns all rooms, or those of some names.
func (a *roomAPI) list(ctx context.Context, names ...string) ([]*livekit.Room, error) {
	grant := &auth.VideoGrant{RoomList: true}
	res, err := call(ctx, a, grant, "list rooms", a.rooms.ListRooms, &livekit.ListRoomsRequest{Names: names})
	return res.GetRooms(), err
}

// dispatched returns the dispatches of a room for this agent, and the workers' copies of them.
func (a *roomAPI) dispatched(ctx context.Context, room string) (roots, copies []*livekit.AgentDispatch, err error) {
	req := &livekit.ListAgentDispatchRequest{Room: room}
	res, err := call(ctx, a, admin(room), "list dispatches", a.dispatches.ListDispatch, req)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range res.GetAgentDispatches() {
		switch {
		case d.GetAgentName() != a.agent || d.GetDeployment() != a.deployment:
		case d.GetAttributes()[rootAttribute] != "":
			copies = append(copies, d)
		default:
			roots = append(roots, d)
		}
	}
	return roots, copies, nil
}

// participants returns the participants of a room.
func (a *roomAPI) participants(ctx context.Context, room string) ([]*livekit.ParticipantInfo, error) {
	req := &livekit.ListParticipantsRequest{Room: room}
	res, err := call(ctx, a, admin(room), "list participants", a.rooms.ListParticipants, req)
	return res.GetParticipants(), err
}

// participant returns the participant with this identity; nil if there is none.
func (a *roomAPI) participant(ctx context.Context, room, identity string) (*livekit.ParticipantInfo, error) {
	req := &livekit.RoomParticipantIdentity{Room: room, Identity: identity}
	p, err := call(ctx, a, admin(room), "look for a participant", a.rooms.GetParticipant, req)
	if err != nil {
		return nil, unlessNotFound(err)
	}
	return p, nil
}

// askState asks an agent for the state to hand over. answered is false if it does not answer within answerTime. An error says nothing
// about the agent.
func (a *roomAPI) askState(ctx context.Context, room, identity string) (state string, answered bool, err error) {
	token, err := auth.NewAccessToken(a.key, a.secret).SetVideoGrant(admin(room)).SetValidFor(time.Minute).ToJWT()
	if err != nil {
		return "", false, err
	}
	res, err := call(ctx, a, admin(room), "ask the agent", a.rooms.PerformRpc, &livekit.PerformRpcRequest{
		Room: room, DestinationIdentity: identity, Method: StateMethod, Payload: token, ResponseTimeoutMs: uint32(answerTime / time.Millisecond),
	})
	te, ok := errors.AsType[twirp.Error](err)
	switch {
	case err == nil, ok && te.Code() == twirp.InvalidArgument: // an agent without the method answers, too
		return res.GetPayload(), true, nil
	case ok && te.Code() == twirp.Canceled: // the server waited in vain
		return "", false, nil
	}
	return "", false, unlessNotFound(err)
}

// remove removes a participant from a room.
func (a *roomAPI) remove(ctx context.Context, room, identity string) error {
	req := &livekit.RoomParticipantIdentity{Room: room, Identity: identity}
	_, err := call(ctx, a, admin(room), "remove a participant", a.rooms.RemoveParticipant, req)
	return unlessNotFound(err)
}

// dispatch creates a dispatch of this agent and returns its id.
func (a *roomAPI) dispatch(ctx context.Context, room, metadata string, attributes map[string]string) (string, error) {
	req := &livekit.CreateAgentDispatchRequest{
		AgentName: a.agent, Room: room, Metadata: metadata, Deployment: a.deployment, Attributes: attributes,
	}
	d, err := call(ctx, a, admin(room), "create a dispatch", a.dispatches.CreateDispatch, req)
	return d.GetId(), err
}

// undispatch deletes a dispatch. A dispatch that does not exist is no error.
func (a *roomAPI) undispatch(ctx context.Context, room, id string) error {
	req := &livekit.DeleteAgentDispatchRequest{Room: room, DispatchId: id}
	_, err := call(ctx, a, admin(room), "delete a dispatch", a.dispatches.DeleteDispatch, req)
	return unlessNotFound(err)
}

// unlessNotFound returns err, or nil if it is the API's "not found".
func unlessNotFound(err error) error {
	if te, ok := errors.AsType[twirp.Error](err); ok && te.Code() == twirp.NotFound {
		return nil
	}
	return err
}
