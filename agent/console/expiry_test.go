package console_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/events"
	"touchline/media/speech"
)

// TestLinkExpires: streams and sockets end with the link that opened them, and say so where they can. Those of the operator go on.
func TestLinkExpires(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	const token = "correct-horse-battery"
	hub, st := events.NewHub(events.Options{History: -1}), newStudio()
	r := open(t, console.Options{
		Keys: keys, Config: console.Config{Listen: "0.0.0.0:0", Token: token}, Transcription: transcriber(),
		Room: console.Room{Name: "final", Bot: newDesk(), Hub: hub, Pictures: st, Sound: st, Tokens: mint{}},
	}, console.Unlimited)
	st.sound <- speech.Frame{Due: time.Now(), PCM: make([]int16, 960)}
	operator := []string{"Authorization", "Bearer " + token}
	mine := r.events("/api/events", operator...)
	mine.want("snapshot")

	now := time.Now()
	link, err := access.Sign(keys, access.Grant{
		Rooms: []string{"final"}, Rights: access.AllInRoom, Expires: now.Add(20 * time.Second),
	}, now.Add(-time.Hour))
	require.NoError(t, err)
	guest := []string{"Authorization", "Bearer " + link}
	reader, plain := r.events("/api/events", guest...), r.events("/api/stream", guest...)
	pictures, sound := r.connect("/api/mjpeg", guest...), r.connect("/api/audio-stream", guest...)
	sockets := []*websocket.Conn{r.socket("/ws/transcribe", link), r.socket("/v1/realtime", link)}

	require.Contains(t, reader.until("expired").data, `"expired_token"`)
	require.Contains(t, plain.until("expired").data, `"expired_token"`)
	for _, e := range []*sseReader{reader, plain} {
		_, err = e.next()
		require.ErrorIs(t, err, io.EOF)
	}
	for _, body := range []*http.Response{pictures, sound} {
		_, err = io.Copy(io.Discard, body.Body)
		require.NoError(t, err, "it ends")
		require.Equal(t, "expired_token: this link has expired; ask for a new one", body.Trailer.Get("X-Ended"))
	}
	for _, conn := range sockets {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		for err = nil; err == nil; {
			_, _, err = conn.ReadMessage()
		}
		require.True(t, websocket.IsCloseError(err, websocket.ClosePolicyViolation), "%v", err)
		require.ErrorContains(t, err, "this link has expired")
	}
	require.Equal(t, http.StatusUnauthorized, r.ask("GET", "/api/status", "", guest...).status)
	require.Eventually(t, func() bool { return expiries(r, operator) == "6" }, time.Minute, 10*time.Millisecond)

	hub.Record(record(1, "shown", "a goal"))
	require.Contains(t, mine.until("record").data, "a goal")
}

// expiries returns the number of ended streams in the metrics.
func expiries(r *running, header []string) string {
	for line := range strings.Lines(string(r.ask("GET", "/metrics", "", header...).body)) {
		if value, ok := strings.CutPrefix(line, "touchline_http_expired_total "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestLinkRevoked: a revoked link ends what it opened, with the reason, and so do those that its holder made. Others go on.
func TestLinkRevoked(t *testing.T) {
	t.Parallel()
	keys := access.Keys{APIKey: "key", APISecret: "a secret of thirty-two characters or more"}
	keys.Links = access.NewLinks(nil, func(string, json.RawMessage) {}, time.Now())
	const token = "correct-horse-battery"
	hub := events.NewHub(events.Options{History: -1})
	r := open(t, console.Options{
		Keys: keys, Config: console.Config{Listen: "0.0.0.0:0", Token: token}, Transcription: transcriber(),
		Room: console.Room{Name: "final", Bot: newDesk(), Hub: hub, Pictures: newStudio(), Tokens: mint{}},
	}, console.Unlimited)
	operator := []string{"Authorization", "Bearer " + token}
	link := func(name string, by ...string) (id, token string, header []string) {
		a := r.ask("POST", "/api/links", `{"rights":["steer"],"for":"1h","name":"`+name+`"}`, by...)
		require.Equal(t, http.StatusCreated, a.status, "%s", a.body)
		var made struct{ ID, Token string }
		require.NoError(t, json.Unmarshal(a.body, &made))
		return made.ID, made.Token, []string{"Authorization", "Bearer " + made.Token}
	}
	id, guest, anns := link("Ann", operator...)
	_, _, friends := link("Friend", append(anns, "X-Forwarded-For", "10.0.0.1")...)
	otherID, _, others := link("Other", operator...)
	reader, second, third := r.events("/api/events", anns...), r.events("/api/stream", friends...), r.events("/api/events", others...)
	pictures, conn := r.connect("/api/mjpeg", anns...), r.socket("/ws/transcribe", guest)

	listed := string(r.ask("GET", "/api/links", "", operator...).body)
	for _, want := range []string{`"id":"` + id + `"`, `"name":"Ann"`, `"name":"Friend"`, `"by":"Ann","makers":["` + id + `"]`} {
		require.Contains(t, listed, want)
	}
	require.NotContains(t, listed, guest)
	require.Equal(t, http.StatusNotFound, r.ask("DELETE", "/api/links/0123456789abcdef", "", others...).status)
	require.JSONEq(t, `{"links":[]}`, string(r.ask("GET", "/api/links", "", others...).body), "it made none")
	require.Contains(t, string(r.ask("GET", "/api/links", "", anns...).body), `"name":"Friend"`)
	for _, link := range []string{id, otherID} { // not below the link of the one who asks
		require.Equal(t, http.StatusNotFound, r.ask("DELETE", "/api/links/"+link, "", others...).status)
		require.Equal(t, http.StatusNotFound, r.ask("DELETE", "/api/links/"+link, "", friends...).status)
	}
	require.Equal(t, http.StatusForbidden,
		r.ask("DELETE", "/api/links/"+id, "", "Authorization", "Bearer "+granted(t, keys, access.Watch|access.Sources, "final")).status)
	require.Equal(t, http.StatusNoContent, r.ask("DELETE", "/api/links/"+id, "", operator...).status)

	require.Contains(t, reader.until("expired").data, `"revoked_link"`)
	require.Contains(t, second.until("expired").data, `"revoked_link"`)
	_, err := io.Copy(io.Discard, pictures.Body)
	require.NoError(t, err, "it ends")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	for err = nil; err == nil; {
		_, _, err = conn.ReadMessage()
	}
	require.True(t, websocket.IsCloseError(err, websocket.ClosePolicyViolation), "%v", err)
	require.ErrorContains(t, err, "this link was revoked")
	require.Eventually(t, func() bool { return expiries(r, operator) == "4" }, time.Minute, 10*time.Millisecond)
	for _, who := range [][]string{anns, friends} {
		a := r.ask("GET", "/api/status", "", who...)
		require.Equal(t, http.StatusUnauthorized, a.status)
		code, _, _ := a.problem(t)
		require.Equal(t, "revoked_link", code)
	}
	code, _, _ := r.ask("POST", "/api/login", `{"token":"`+guest+`"}`).problem(t)
	require.Equal(t, "revoked_link", code)
	hub.Record(record(1, "shown", "a goal"))
	require.Contains(t, third.until("record").data, "a goal")
}

// revoking is a body whose sender's link is revoked while it is read.
type revoking struct {
	io.Reader

	revoke func()
}

func (b revoking) Read(p []byte) (int, error) {
	b.revoke()
	return b.Reader.Read(p)
}

// TestLinkRevokedDuringARequest: a request whose link is revoked before its body is complete is not carried out.
func TestLinkRevokedDuringARequest(t *testing.T) {
	t.Parallel()
	for request, body := range map[string]string{
		"POST /api/instruction":             `{"instruction":"the keeper"}`,
		"POST /api/links":                   `{"rights":["watch"],"for":"30m"}`,
		"POST /api/settings":                `{"speech":false}`,
		"PATCH /api/rooms/final":            `{"instruction":"the keeper"}`,
		"POST /api/rooms/final/source":      `{"source":"scene"}`,
		"POST /api/rooms/final/instruction": `{"instruction":"the keeper"}`,
	} {
		keys := crowdKeys
		keys.Links = access.NewLinks(nil, nil, time.Now())
		d := newDesk()
		s, err := console.New(console.Options{
			Keys: keys, Room: console.Room{Name: "final", Bot: d}, WebDir: t.TempDir(),
			Config: console.Config{Listen: "127.0.0.1:0", Token: operatorToken},
		})
		require.NoError(t, err)
		token := granted(t, keys, access.AllInRoom, "final")
		grant, err := access.Verify(keys, token, time.Now())
		require.NoError(t, err)
		method, path, _ := strings.Cut(request, " ")
		revoked := false
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, revoking{strings.NewReader(body), func() {
			if !revoked {
				revoked = true
				require.NoError(t, keys.Links.Revoke("final", grant.Root(), "", time.Now()))
			}
		}})
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		console.Handler(s).ServeHTTP(w, r)
		require.True(t, revoked, "the body is read: %s", request)
		if method == "POST" {
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s: %s", request, w.Body)
			require.Contains(t, w.Body.String(), `"revoked_link"`)
		}
		require.GreaterOrEqual(t, w.Code, http.StatusBadRequest, "%s: %s", request, w.Body)
		require.Empty(t, d.orders(), request)
		require.Len(t, keys.Links.List("final", "", time.Now()), 1, "the revoked one alone")
	}
}
