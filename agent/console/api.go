package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"touchline/agent"
	"touchline/agent/access"
	"touchline/agent/command"
	"touchline/agent/events"
	"touchline/agent/prompt"
	"touchline/agent/settings"
	"touchline/inference"
)

const (
	// pictureWait bounds the wait of /api/frame for a picture.
	pictureWait = 2 * time.Second
	// maxName is the longest name of a viewer, in characters.
	maxName = 64
	// maxIdentity is the longest identity in a source, in bytes.
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
	loginBody struct {
		Token string `json:"token"`
	}
)

// by names the client, for the log and for the page.
func by(r *http.Request) string {
	if name := visitorOf(r).name; name != "" {
		return name
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || peer.Addr().Unmap().IsLoopback() {
		return "the page"
	}
	return "the page (" + peer.Addr().Unmap().WithZone("").String() + ")"
}

// order runs a command and answers with the snapshot after it.
func (h *roomEntry) order(w http.ResponseWriter, do func(agent.Steerer) error) error {
	b, err := h.bot()
	if err != nil {
		return err
	}
	if err := do(b); err != nil {
		return err
	}
	h.changed()
	return writeJSON(w, http.StatusOK, b.Snapshot())
}

func (s *Server) getStatus(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	b, err := h.bot()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, b.Snapshot())
}

func (s *Server) postInstruction(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in instructionBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Instruction == nil {
		return refuse(http.StatusUnprocessableEntity, "bad_instruction", `expected {"instruction": "..."}`)
	}
	return h.order(w, func(b agent.Steerer) error {
		_, err := agent.HandleText(b, *in.Instruction, by(r))
		return refuseOrder(w, err, "bad_instruction")
	})
}

// sayAgain is the time after which a refused announcement may be tried again, in seconds.
const sayAgain = 5

// refuseOrder returns the answer to a refused order; nil without an error.
func refuseOrder(w http.ResponseWriter, err error, code string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, agent.ErrTooMuchToSay):
		w.Header().Set("Retry-After", strconv.Itoa(sayAgain))
		return refuse(http.StatusTooManyRequests, "too_much_to_say", "%v", err)
	case errors.Is(err, agent.ErrNothingTo):
		return refuse(http.StatusConflict, "nothing_to_do", "%v", err)
	}
	return refuse(http.StatusUnprocessableEntity, code, "%v", err)
}

func (s *Server) postCommand(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in commandBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	return h.order(w, func(b agent.Steerer) error {
		_, err := b.Command(in.Command, by(r))
		return refuseOrder(w, err, "bad_command")
	})
}

func (s *Server) postSay(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in agent.Announcement
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	return h.order(w, func(b agent.Steerer) error {
		return refuseOrder(w, b.Say(in, by(r)), "bad_announcement")
	})
}

func (s *Server) deleteInstruction(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	return h.order(w, func(b agent.Steerer) error {
		_, err := b.Change(agent.Change{Instruction: new("")}, by(r))
		return err
	})
}

// profileList is the answer of /api/profiles.
type profileList struct {
	Profiles []prompt.Profile `json:"profiles"`
	Active   string           `json:"active"`
}

func (s *Server) getProfiles(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	b, err := h.bot()
	if err != nil {
		return err
	}
	snap := b.Snapshot()
	out := profileList{Profiles: snap.Profiles, Active: snap.Profile}
	if out.Profiles == nil {
		out.Profiles = []prompt.Profile{}
	}
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) postProfile(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in profileBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	return h.order(w, func(b agent.Steerer) error {
		if _, err := b.Change(agent.Change{Profile: &in.Profile}, by(r)); err != nil {
			return refuse(http.StatusBadRequest, "unknown_profile", "%v", err)
		}
		return nil
	})
}

// settingList is the answer of GET /api/settings.
type settingList struct {
	Settings []settings.Setting `json:"settings"`
}

func (s *Server) getSettings(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	b, err := h.bot()
	if err != nil {
		return err
	}
	table := settings.Table()
	for i := range table {
		if presets := b.Snapshot().Presets; table[i].Name == "preset" && len(presets) > 0 {
			table[i].Options = append([]string{"", agent.PresetAuto}, presets...)
		}
	}
	return writeJSON(w, http.StatusOK, settingList{table})
}

func (s *Server) postSettings(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in agent.Settings
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	b, err := h.bot()
	if err != nil {
		return err
	}
	out, err := b.Change(agent.Change{Settings: in}, by(r))
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "out_of_range", "%v", err)
	}
	h.changed()
	return writeJSON(w, http.StatusOK, out)
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

func (s *Server) postStart(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in sourceBody
	if err := readJSON(w, r, &in, true); err != nil {
		return err
	}
	if err := checkSource(in.Source); err != nil {
		return err
	}
	return h.order(w, func(b agent.Steerer) error {
		err := b.Start(in.Source, by(r))
		switch {
		case errors.Is(err, agent.ErrRunning):
			return refuse(http.StatusConflict, "running", "%v", err)
		case err != nil:
			return refuse(http.StatusBadRequest, "bad_source", "%v", err)
		}
		return nil
	})
}

func (s *Server) postStop(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	if err := readJSON(w, r, &struct{}{}, true); err != nil {
		return err
	}
	return h.order(w, func(b agent.Steerer) error {
		b.Stop(by(r))
		h.Hub.EndStreams()
		if h.OnStop != nil {
			h.OnStop()
		}
		return nil
	})
}

func (s *Server) postSource(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in sourceBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := checkSource(in.Source); err != nil {
		return err
	}
	return h.order(w, func(b agent.Steerer) error { return watch(b, in.Source, by(r)) })
}

func (s *Server) getHistory(h *roomEntry, w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, h.Hub.History())
}

// deleteHeard deletes what people said from memory and from what is kept on disk.
func (s *Server) deleteHeard(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	by := r.URL.Query().Get("by")
	h.Hub.ForgetHeard(by)
	if h.Forget != nil {
		if err := h.Forget(r.Context(), by); err != nil {
			return fmt.Errorf("delete what was said: %w", err)
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// inSlot encodes a picture in one of a few slots, so that many requests leave
// the CPU to the commentary.
func (s *Server) inSlot(ctx context.Context, do func() ([]byte, error)) ([]byte, error) {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "busy", "too many pictures are encoded at once; try again")
	}
	defer func() { <-s.busy }()
	return do()
}

func (s *Server) getFrame(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	if h.Pictures == nil {
		return refuse(http.StatusNotFound, "no_picture", "no picture: no source is watched")
	}
	width, err := pictureWidth(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pictureWait)
	defer cancel()
	take := func() ([]byte, error) {
		f, err := h.Pictures.Snapshot(ctx)
		if err != nil {
			return nil, refuse(http.StatusNotFound, "no_picture", "no picture: %v", err)
		}
		side := width
		if f.Height > f.Width && f.Width > 0 {
			side = width * f.Height / f.Width
		}
		return s.inSlot(ctx, func() ([]byte, error) { return events.JPEG(f, side, h.JPEGQuality) })
	}
	var data []byte
	if width == 0 {
		data, err = take()
	} else {
		data, err = h.stills.get(ctx, width, take)
	}
	if err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, "image/jpeg", data)
}

// pictureWidth returns the requested width, 0 for the picture's own.
func pictureWidth(r *http.Request) (int, error) {
	q := r.URL.Query().Get("w")
	if q == "" {
		return 0, nil
	}
	width, err := strconv.Atoi(q)
	if err != nil || width < 16 || width > events.MaxFrameSide {
		return 0, refuse(http.StatusBadRequest, "bad_width", "w: expected 16 to %d pixels, got %.40q", events.MaxFrameSide, q)
	}
	return width, nil
}

func (s *Server) getSeenFrame(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return refuse(http.StatusNotFound, "no_picture", "frames: expected a picture's id, a number, got %.40q", r.PathValue("id"))
	}
	width, err := pictureWidth(r)
	if err != nil {
		return err
	}
	data, ok := h.Hub.Frame(id)
	if !ok {
		return refuse(http.StatusNotFound, "no_picture", "picture %d is not stored, or no longer", id)
	}
	return s.writePicture(h, w, r, data, width)
}

// writePicture answers with a JPEG, scaled to a width; 0 is its own.
func (s *Server) writePicture(h *roomEntry, w http.ResponseWriter, r *http.Request, data []byte, width int) error {
	if width > 0 {
		var err error
		full := data
		data, err = s.inSlot(r.Context(), func() ([]byte, error) { return events.Thumbnail(full, width, h.JPEGQuality) })
		if err != nil {
			return err
		}
	}
	return writeBody(w, http.StatusOK, "image/jpeg", data)
}

// grantBody is the answer of /api/livekit/token.
type grantBody struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	Identity string `json:"identity"`
	Room     string `json:"room"`
	Agent    string `json:"agent,omitempty" doc:"The commentator's identity in the room."`
}

func (s *Server) postToken(h *roomEntry, w http.ResponseWriter, r *http.Request) error {
	var in tokenBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.Role != "viewer" && in.Role != "camera" {
		return refuse(http.StatusBadRequest, "bad_role", `role: expected "viewer" or "camera", got %.40q`, in.Role)
	}
	who := visitorOf(r)
	if in.Role == "camera" && !who.rights.Allow(access.Sources) {
		return noRight(access.Sources, who)
	}
	name := strings.TrimSpace(in.Name)
	if utf8.RuneCountInString(name) > maxName || !printable(name) {
		return refuse(http.StatusBadRequest, "bad_name", "name: expected at most %d printable characters", maxName)
	}
	if h.Tokens == nil || s.opts.SignalURL == "" {
		return refuse(http.StatusServiceUnavailable, "no_room", "joining is disabled: no LiveKit API key is configured")
	}
	g, err := h.Tokens.Mint(in.Role, name, who.rights)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "no_room", "create a token: %v", err)
	}
	return writeJSON(w, http.StatusOK, grantBody{
		URL: socketOrigin(r), Token: g.Token, Identity: g.Identity, Room: g.Room, Agent: g.Agent,
	})
}

// socketOrigin is the WebSocket origin of the request's host. Behind a proxy that
// terminates TLS, the page's origin shows that it must be wss.
func socketOrigin(r *http.Request) string {
	if r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://") {
		return "wss://" + r.Host
	}
	return "ws://" + r.Host
}

func (s *Server) postLogin(w http.ResponseWriter, r *http.Request) error {
	var in loginBody
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := s.limitLogins(w, r); err != nil {
		return err
	}
	cookie, err := s.guard.login(in.Token, r.TLS != nil, time.Now())
	if err != nil {
		s.logRefused(r)
		if errors.Is(err, access.ErrExpired) {
			return refuse(http.StatusUnauthorized, "expired_token", "this link has expired; ask for a new one")
		}
		return refuse(http.StatusUnauthorized, "bad_token",
			"wrong token; use a link that somebody shared, the configured token, or the one in the address printed at the start (#token=...)")
	}
	http.SetCookie(w, cookie)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// limitLogins counts a login attempt. It returns a 429 beyond the limit.
func (s *Server) limitLogins(w http.ResponseWriter, r *http.Request) error {
	wait, ok := s.guard.mayLogin(r, time.Now())
	if ok {
		return nil
	}
	seconds := math.Ceil(wait.Seconds())
	w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	return refuse(http.StatusTooManyRequests, "too_many_logins", "too many logins; try again in %.0f s", seconds)
}

// logRefused logs refused login attempts at a bounded rate.
func (s *Server) logRefused(r *http.Request) {
	s.guard.refused.Add(1)
	if _, ok := s.guard.loginLog.Allow(struct{}{}, time.Now()); ok {
		s.log.Warn().Str("peer", r.RemoteAddr).Int64("count", s.guard.refused.Swap(0)).Msg("login refused")
	}
}

// notReady is the status of /readyz while it answers 503.
const notReady = "not ready"

// health is the answer of the probes.
type health struct {
	Status string `json:"status"`
	Detail string `json:"detail"`
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, health{"ok", "the process is alive"})
}

func (s *Server) getReady(w http.ResponseWriter, _ *http.Request) error {
	if s.single == nil {
		return s.getWorkerReady(w)
	}
	out := health{notReady, "the commentator has not started yet"}
	if b := s.single.Bot; b != nil {
		snap := b.Snapshot()
		out.Detail = snap.Status.Detail
		switch {
		case !snap.ModelLoaded:
			out.Detail = cmp.Or(out.Detail, loading(snap.Status.Percent))
		case snap.Status.State == agent.StateInitializing || snap.Status.Chip == agent.ChipReconnecting:
			out.Detail = cmp.Or(out.Detail, "not in the room yet")
		default:
			return writeJSON(w, http.StatusOK, health{"ready", cmp.Or(out.Detail, snap.Status.State)})
		}
	}
	return writeJSON(w, http.StatusServiceUnavailable, out)
}

// getWorkerReady answers for a process with any number of rooms: it is ready when its engine is.
func (s *Server) getWorkerReady(w http.ResponseWriter) error {
	if s.opts.Engine != nil {
		switch st := s.opts.Engine(); st.Phase {
		case inference.PhaseLoading, inference.PhaseWarming, inference.PhaseFailed:
			return writeJSON(w, http.StatusServiceUnavailable, health{notReady, cmp.Or(st.Detail, loading(st.Percent))})
		case inference.PhaseReady, inference.PhaseUnloaded: // an unloaded engine loads again on demand
		}
	}
	return writeJSON(w, http.StatusOK, health{"ready", "rooms: " + strconv.Itoa(len(s.rooms.list()))})
}

func loading(percent int) string { return "the model is loading: " + strconv.Itoa(percent) + " %" }
