package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"touchline/agent"
	"touchline/agent/command"
	"touchline/agent/look"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
)

// Dispatcher sends commentators to rooms and withdraws them.
type Dispatcher interface {
	// Dispatch requests a commentator for a room and returns the id of the
	// dispatch. The commentator joins later, from this process or another.
	Dispatch(ctx context.Context, c Call) (id string, err error)
	// Withdraw ends the commentary of a room, in this process or another.
	Withdraw(ctx context.Context, room string) error
}

// Errors of a Dispatcher.
var (
	// ErrServed is returned for a room with a commentator, or with a dispatch for one.
	ErrServed = errors.New("the room already has a commentator")
	// ErrNotServed is returned for a room without a commentator and without a dispatch.
	ErrNotServed = errors.New("the room has no commentator")
	// ErrCall is wrapped by the errors of an invalid call.
	ErrCall = errors.New("invalid call")
)

// Call requests a commentator for a room. The defaults of its fields are the settings of the worker that serves the room.
type Call struct {
	Room        string `json:"room" minLength:"1" maxLength:"256" doc:"The room's name; it is opened when it is not open."`
	Profile     string `json:"profile,omitempty" doc:"Name of a prompt profile."`
	Instruction string `json:"instruction,omitempty" maxLength:"2000" doc:"The instruction at the start."`
	Track       *Track `json:"track,omitempty" doc:"The watched video; the first camera when left out."`
	Speech      *bool  `json:"speech,omitempty" doc:"Whether comments are spoken."`
	Language    string `json:"language,omitempty" maxLength:"35" doc:"BCP 47 tag, such as en or pt-BR."`
	Engine      string `json:"engine,omitempty" doc:"If the worker that serves it has it."`
}

// TransformSchema implements huma.SchemaTransformer: it lists the engines.
func (Call) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	for _, name := range inference.Engines() {
		s.Properties["engine"].Enum = append(s.Properties["engine"].Enum, name)
	}
	s.Properties["engine"].PrecomputeMessages()
	return s
}

// Track chooses a video.
type Track struct {
	Identity string `json:"identity,omitempty" maxLength:"256" doc:"Of the participant that publishes it."`
	Source   string `json:"source,omitempty" enum:"camera,screen_share"`
}

// RoomInfo is a room in the list. It is exported for huma, which reads exported types only.
type RoomInfo struct {
	Room          string           `json:"room"`
	State         string           `json:"state" doc:"LiveKit's agent state: initializing, idle, listening, thinking or speaking."`
	Activity      string           `json:"chip" doc:"waiting, loading, failed, watching, thinking, speaking, silent, idle or reconnecting."`
	Reason        string           `json:"reason,omitempty" doc:"Why, in words."`
	Percent       int              `json:"percent" doc:"Loading of the model."`
	Engine        string           `json:"engine"`
	Instruction   string           `json:"instruction"`
	InstructionBy string           `json:"instruction_by,omitempty"`
	Profile       string           `json:"profile"`
	Speech        bool             `json:"speech" doc:"Whether comments are spoken."`
	Source        agent.SourceInfo `json:"source"`
	Viewers       int              `json:"viewers" doc:"People in the room."`
	Delay         float64          `json:"delay" doc:"How far the picture is behind live, s."`
	AlignmentLast float64          `json:"alignment_last" doc:"Alignment error of the last comment, s; -1 when none was measured."`
	AlignmentP95  float64          `json:"alignment_p95" doc:"95th percentile over the last 100 comments, s; -1 when none was measured."`
	Comments      uint64           `json:"comments"`
	Newest        *newest          `json:"newest,omitempty" doc:"The last comment."`
	Since         time.Time        `json:"since" doc:"When the commentator started."`
}

// newest is a room's last comment.
type newest struct {
	Cycle uint64    `json:"cycle"`
	Text  string    `json:"text"`
	At    time.Time `json:"at" doc:"When it started."`
}

// roomDetail is a room with its settings.
type roomDetail struct {
	RoomInfo
	Settings settings.Settings `json:"settings" doc:"All that can be changed at run time."`
	Profiles []prompt.Profile  `json:"profiles" doc:"The prompt profiles."`
}

// roomList is the answer of GET /api/rooms.
type roomList struct {
	Rooms []RoomInfo `json:"rooms" doc:"Those that this process serves, sorted by name."`
}

// roomPatch changes a room; absent fields do not change.
type roomPatch struct {
	Instruction *string            `json:"instruction,omitempty" doc:"At most 2000 characters; \"\" clears it and stops commenting."`
	Profile     *string            `json:"profile,omitempty" doc:"Name of a prompt profile."`
	Source      *string            `json:"source,omitempty" doc:"\"\" (the first camera), \"camera:IDENTITY\" or \"scene\" (built in)."`
	Speech      *bool              `json:"speech,omitempty" doc:"The same as settings.speech."`
	Settings    *settings.Settings `json:"settings,omitempty"`
}

// comments is the answer of GET /api/rooms/{room}/comments.
type comments struct {
	Room     string        `json:"room"`
	Comments []look.Record `json:"comments" doc:"Oldest first."`
}

// dispatched is the answer of POST /api/rooms.
type dispatched struct {
	Room     string `json:"room"`
	Dispatch string `json:"dispatch_id" doc:"Of LiveKit's agent dispatch."`
}

// info describes the room now.
func (h *roomEntry) info() RoomInfo {
	out := RoomInfo{Room: h.Name, Since: h.since.UTC(), AlignmentLast: -1, AlignmentP95: -1}
	if h.Viewers != nil {
		out.Viewers = h.Viewers()
	}
	if r, ok := h.Hub.Last(); ok {
		out.Newest = &newest{Cycle: r.Cycle, Text: r.Text, At: commentTime(r)}
	}
	if h.Bot == nil {
		out.State, out.Activity, out.Reason = agent.StateInitializing, agent.ActivityLoading, "the commentator has not started yet"
		return out
	}
	s := h.Bot.Snapshot()
	out.State, out.Activity, out.Reason, out.Percent = s.Status.State, s.Status.Activity, s.Status.Detail, s.Status.Percent
	out.Engine, out.Instruction, out.InstructionBy, out.Profile = s.Engine, s.Instruction, s.InstructionBy, s.Profile
	out.Speech, out.Source, out.Comments = s.TTSEnabled, s.Source, s.Comments
	out.Delay, out.AlignmentLast, out.AlignmentP95 = s.Delay, s.AlignmentLast, s.AlignmentP95
	return out
}

// detail describes the room with its settings.
func (h *roomEntry) detail() roomDetail {
	out := roomDetail{RoomInfo: h.info(), Profiles: []prompt.Profile{}}
	if h.Bot != nil {
		s := h.Bot.Snapshot()
		out.Settings = s.Settings
		out.Profiles = append(out.Profiles, s.Profiles...)
	}
	return out
}

// commentTime returns the start of a comment; for an unpublished one, the end of its generation.
func commentTime(r look.Record) time.Time {
	if !r.StartedAt.IsZero() {
		return r.StartedAt
	}
	return r.InferenceEnd
}

// RoomPath is the path parameter of a room. It is exported for huma, which sets exported fields only.
type RoomPath struct {
	Room string `path:"room" doc:"The room's name, percent-encoded."`
}

// reply is an answer with a JSON body.
type reply[T any] struct{ Body T }

// registerRooms adds the operations on the list of rooms and on a whole room.
func (s *Server) registerRooms(d *document) {
	op := func(method, path, summary string) huma.Operation {
		return huma.Operation{
			Method: method, Path: path, OperationID: operationID(method, path), Summary: summary, Tags: []string{tagOf(path)},
			Security: secured(restricted), MaxBodyBytes: maxBody, Responses: map[string]*huma.Response{"default": d.errorAnswer()},
		}
	}
	const one = "/api/rooms/{room}"
	huma.Register(d, op(http.MethodGet, "/api/rooms", "The rooms that this process serves"),
		func(context.Context, *struct{}) (*reply[roomList], error) {
			return &reply[roomList]{roomList{s.rooms.infos()}}, nil
		})
	call := op(http.MethodPost, "/api/rooms", "Requests a commentator for a room; it has joined when its worker lists the room")
	call.DefaultStatus = http.StatusAccepted
	huma.Register(d, call, s.postRoom)
	huma.Register(d, op(http.MethodGet, one, "One room, with its settings"),
		func(ctx context.Context, _ *RoomPath) (*reply[roomDetail], error) {
			h, err := roomOf(ctx)
			if err != nil {
				return nil, err
			}
			return &reply[roomDetail]{h.detail()}, nil
		})
	patch := op(http.MethodPatch, one, "Changes a room: all fields or none")
	patch.SkipValidateBody = true // patchRoom reports all errors at once
	schema := d.schema(roomPatch{})
	patch.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	huma.Register(d, patch, func(ctx context.Context, in *struct {
		RoomPath
		RawBody []byte `contentType:"application/json"`
	},
	) (*reply[roomDetail], error) {
		return patchRoom(ctx, d, schema, in.RawBody)
	})
	huma.Register(d, op(http.MethodDelete, one, "Ends the commentary of a room: its dispatch is deleted"),
		func(ctx context.Context, in *RoomPath) (*struct{}, error) {
			return nil, s.deleteRoom(ctx, in.Room)
		})
	huma.Register(d, op(http.MethodGet, one+"/comments", "The last comments of a room"),
		func(ctx context.Context, in *struct {
			RoomPath
			Limit int `query:"limit" minimum:"1" maximum:"1000" default:"20" doc:"The most comments; agent.history.comments are stored."`
		},
		) (*reply[comments], error) {
			h, err := roomOf(ctx)
			if err != nil {
				return nil, err
			}
			all := h.Hub.History()
			return &reply[comments]{comments{h.Name, all[max(0, len(all)-in.Limit):]}}, nil
		})
}

// noDispatch returns the answer to a dispatch in a process for one room.
func noDispatch() error {
	return refuse(http.StatusNotImplemented, "one_room",
		"this process serves one room; run touchline agent for many")
}

func (s *Server) postRoom(ctx context.Context, in *struct{ Body Call }) (*struct {
	Location string `header:"Location"`
	Body     dispatched
}, error,
) {
	if s.opts.Dispatcher == nil {
		return nil, noDispatch()
	}
	if !printable(in.Body.Room) || strings.TrimSpace(in.Body.Room) != in.Body.Room {
		return nil, refuse(http.StatusUnprocessableEntity, "bad_fields",
			"room: must be printable characters without surrounding space, is %q", in.Body.Room)
	}
	id, err := s.opts.Dispatcher.Dispatch(ctx, in.Body)
	switch {
	case errors.Is(err, ErrServed):
		return nil, refuse(http.StatusConflict, "served", "%v", err)
	case errors.Is(err, ErrCall):
		return nil, refuse(http.StatusUnprocessableEntity, "bad_fields", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	case err != nil:
		return nil, refuse(http.StatusBadGateway, "no_server", "create the dispatch: %v", err)
	}
	s.log.Info().Str("room", in.Body.Room).Str("by", caller(ctx)).Msg("commentator requested")
	return &struct {
		Location string `header:"Location"`
		Body     dispatched
	}{"/api/rooms/" + url.PathEscape(in.Body.Room), dispatched{in.Body.Room, id}}, nil
}

func (s *Server) deleteRoom(ctx context.Context, room string) error {
	if s.opts.Dispatcher == nil {
		return noDispatch()
	}
	err := s.opts.Dispatcher.Withdraw(ctx, room)
	switch {
	case errors.Is(err, ErrNotServed) && s.rooms.get(room) != nil:
		return refuse(http.StatusConflict, "one_of_several",
			"%.80q is the commentator of one participant of a room that is served as a whole: "+
				"DELETE /api/rooms/{room} with the room's name ends all of its commentators", room)
	case errors.Is(err, ErrNotServed):
		return refuse(http.StatusNotFound, "no_such_room", "%v", err)
	case err != nil:
		return refuse(http.StatusBadGateway, "no_server", "delete the dispatch: %v", err)
	}
	s.log.Info().Str("room", room).Str("by", caller(ctx)).Msg("commentator removed")
	return nil
}

func patchRoom(ctx context.Context, d *document, schema *huma.Schema, body []byte) (*reply[roomDetail], error) {
	h, err := roomOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := needsBot(h); err != nil {
		return nil, err
	}
	var in roomPatch
	wrong := d.fields(body, schema, &in)
	if p, ok := errors.AsType[*problem](errors.Join(wrong...)); ok {
		return nil, p
	}
	change := command.Change{Instruction: in.Instruction, Profile: in.Profile, Source: in.Source}
	if in.Settings != nil {
		change.Settings = *in.Settings
	}
	if in.Speech != nil {
		if own := change.Settings.Speech; own != nil && *own != *in.Speech {
			wrong = append(wrong, errors.New("speech: differs from settings.speech, which is the same setting"))
		}
		change.Settings.Speech = in.Speech
	}
	if in.Source != nil {
		if err := checkSource(*in.Source); err != nil {
			wrong, change.Source = append(wrong, err), nil
		}
	}
	if len(wrong) > 0 {
		err = errors.Join(append(wrong, h.Bot.Check(change))...)
	} else {
		_, err = h.Bot.Change(change, caller(ctx))
	}
	if err != nil {
		return nil, refuse(http.StatusUnprocessableEntity, "bad_fields", "%s", strings.Join(sentences(flat(err)), "; "))
	}
	if in.Instruction != nil && strings.TrimSpace(*in.Instruction) == "" {
		h.Hub.EndStreams()
	}
	h.changed()
	return &reply[roomDetail]{h.detail()}, nil
}

// flat returns the parts of joined errors.
func flat(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flat(e)...)
	}
	return out
}
