package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/agent/access"
	"touchline/agent/command"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/agent/speech"
	"touchline/internal/limit"
)

const (
	// maxName is the longest name of a viewer, in characters.
	maxName = 64
	// maxIdentity is the longest identity in a source or a deletion, in bytes.
	maxIdentity = 256
)

// Bodies of requests.
type (
	instructionBody struct {
		Instruction *string `json:"instruction"`
	}
	commandBody struct {
		Command command.Command `json:"command" enum:"stop,go_on,undo,shorter,longer,repeat,louder,softer"`
	}
	profileBody struct {
		Profile string `json:"profile"`
	}
	// sourceBody starts commenting or chooses the watched source.
	sourceBody struct {
		Source string `json:"source,omitempty" doc:"\"\" (the first camera), \"camera:IDENTITY\", \"scene\" (built in) or \"world:NAME\"."`
	}
	tokenBody struct {
		Role string `json:"role" enum:"viewer,camera"`
		Name string `json:"name,omitempty" maxLength:"64"`
	}
)

// by returns the name of the client for the log and the page.
func by(r *http.Request) string {
	if name := visitorOf(r).grant.Name; name != "" {
		return name
	}
	peer := peerOf(r)
	if !peer.IsValid() || peer.IsLoopback() {
		return "the page"
	}
	return "the page (" + peer.String() + ")"
}

func (h *roomEntry) postInstruction(r *http.Request, in instructionBody) error {
	if in.Instruction == nil {
		return refuse(http.StatusUnprocessableEntity, "bad_instruction", `expected {"instruction": "..."}`)
	}
	_, err := command.Handle(h.Bot, *in.Instruction, by(r))
	return refuseOrder(err, "bad_instruction")
}

// sayAgain is the time after which a refused announcement may be tried again, in seconds.
const sayAgain = 5

// refuseOrder returns the answer to a refused order; nil without an error.
func refuseOrder(err error, code string) error {
	if errors.Is(err, speech.ErrFull) {
		return refuse(http.StatusTooManyRequests, "too_much_to_say", "%v", err).after(sayAgain)
	}
	return refusal(err, answer{command.ErrNothingTo, http.StatusConflict, "nothing_to_do"}, answer{nil, http.StatusUnprocessableEntity, code})
}

func (h *roomEntry) postCommand(r *http.Request, in commandBody) error {
	_, err := h.Bot.Command(in.Command, by(r))
	return refuseOrder(err, "bad_command")
}

func (h *roomEntry) postSay(r *http.Request, in speech.Notice) error {
	return refuseOrder(h.Bot.Say(in, by(r)), "bad_announcement")
}

func (h *roomEntry) deleteInstruction(r *http.Request, _ nothing) error {
	_, err := h.Bot.Change(command.Change{Instruction: new("")}, by(r))
	return err
}

// profileList is the answer of /api/profiles.
type profileList struct {
	Profiles []prompt.Profile `json:"profiles"`
	Active   string           `json:"active"`
}

func (h *roomEntry) getProfiles(*http.Request) (profileList, error) {
	snap := h.Bot.Snapshot()
	return profileList{Profiles: append([]prompt.Profile{}, snap.Profiles...), Active: snap.Profile}, nil
}

func (h *roomEntry) postProfile(r *http.Request, in profileBody) error {
	_, err := h.Bot.Change(command.Change{Profile: &in.Profile}, by(r))
	return refusal(err, answer{nil, http.StatusBadRequest, "unknown_profile"})
}

// settingList is the answer of GET /api/settings.
type settingList struct {
	Settings []settings.Setting `json:"settings"`
}

func (h *roomEntry) getSettings(*http.Request) (settingList, error) {
	table := settings.Table()
	for i := range table {
		if presets := h.Bot.Snapshot().Presets; table[i].Name == "preset" && len(presets) > 0 {
			table[i].Options = append([]string{"", settings.Auto}, presets...)
		}
	}
	return settingList{table}, nil
}

func (h *roomEntry) postSettings(_ http.ResponseWriter, r *http.Request, in settings.Settings) (settings.Settings, error) {
	if err := needsBot(h); err != nil {
		return in, err
	}
	out, err := h.Bot.Change(command.Change{Settings: in}, by(r))
	if err != nil {
		return in, refusal(err, answer{nil, http.StatusUnprocessableEntity, "out_of_range"})
	}
	h.changed()
	return out, nil
}

// checkSource accepts "", "scene", "world:NAME" and "camera:IDENTITY".
func checkSource(source string) error {
	if source == "" || source == "scene" {
		return nil
	}
	identity, ok := strings.CutPrefix(source, "camera:")
	if !ok {
		identity, ok = strings.CutPrefix(source, "world:")
	}
	if !ok || identity == "" || len(identity) > maxIdentity || !printable(identity) {
		return refuse(http.StatusBadRequest, "bad_source",
			`expected "" (the first camera), "camera:IDENTITY", "scene" or "world:NAME", got %.80q`, source)
	}
	return nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (h *roomEntry) postStart(r *http.Request, in *sourceBody) error {
	var source string
	if in != nil {
		source = in.Source
	}
	if err := checkSource(source); err != nil {
		return err
	}
	return refusal(h.Bot.Start(source, by(r)),
		answer{command.ErrRunning, http.StatusConflict, "running"}, answer{nil, http.StatusBadRequest, "bad_source"})
}

func (h *roomEntry) postStop(r *http.Request, _ *empty) error {
	h.Bot.Stop(by(r))
	h.Hub.EndStreams()
	if h.OnStop != nil {
		h.OnStop()
	}
	return nil
}

func (h *roomEntry) postSource(r *http.Request, in sourceBody) error {
	if err := checkSource(in.Source); err != nil {
		return err
	}
	return watch(h.Bot, in.Source, by(r))
}

// deleteHeard deletes what people said from memory and from what is stored on disk.
func (s *Server) deleteHeard(h *roomEntry, r *http.Request) error {
	by := r.URL.Query().Get("by")
	if len(by) > maxIdentity {
		return refuse(http.StatusUnprocessableEntity, "bad_identity", "by: must be an identity of at most %d bytes, has %d", maxIdentity, len(by))
	}
	if wait, ok := s.deletions.Allow(limit.ClientOf(r.Context()), time.Now()); !ok {
		return tooMany("requests", wait)
	}
	h.Hub.ForgetHeard(by) // without a Forget too
	if h.Forget != nil {
		if err := h.Forget(r.Context(), by); err != nil {
			return fmt.Errorf("delete what was said: %w", err)
		}
	}
	return nil
}

// grantBody is the answer of /api/livekit/token.
type grantBody struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	Identity string `json:"identity"`
	Room     string `json:"room"`
	Agent    string `json:"agent,omitempty" doc:"The commentator's identity in the room."`
}

func (s *Server) postToken(h *roomEntry, _ http.ResponseWriter, r *http.Request, in tokenBody) (out grantBody, err error) {
	if in.Role != "viewer" && in.Role != "camera" {
		return out, refuse(http.StatusBadRequest, "bad_role", `role: expected "viewer" or "camera", got %.40q`, in.Role)
	}
	who := visitorOf(r)
	if in.Role == "camera" && !who.rights.Allow(access.Sources) {
		return out, noRight(access.Sources, who)
	}
	name := strings.TrimSpace(in.Name)
	if utf8.RuneCountInString(name) > maxName || !printable(name) {
		return out, refuse(http.StatusBadRequest, "bad_name", "name: expected at most %d printable characters", maxName)
	}
	if h.Tokens == nil || s.opts.SignalURL == "" {
		return out, refuse(http.StatusServiceUnavailable, "no_room", "joining is disabled: no LiveKit API key is configured")
	}
	who.grant.Rights = who.rights
	g, err := h.Tokens.Mint(in.Role, name, who.grant)
	if err != nil {
		return out, refuse(http.StatusServiceUnavailable, "no_room", "create a token: %v", err)
	}
	return grantBody{URL: socketOrigin(r), Token: g.Token, Identity: g.Identity, Room: g.Room, Agent: g.Agent}, nil
}

// overTLS reports whether a client reaches this console over TLS. Behind a proxy that terminates TLS, the page's origin shows it.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

// socketOrigin is the WebSocket origin of the request's host.
func socketOrigin(r *http.Request) string {
	if overTLS(r) {
		return "wss://" + r.Host
	}
	return "ws://" + r.Host
}
