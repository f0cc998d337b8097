//go:build integration

package bot_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	livekitwebhook "github.com/livekit/protocol/webhook"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/agent/bot"
	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
	"touchline/agent/webhook"
	"touchline/configs"
	"touchline/internal/redact"
)

// hookReceiver is a receiver of webhooks that verifies them as LiveKit's do.
type hookReceiver struct {
	t    *testing.T
	keys auth.KeyProvider

	mu     sync.Mutex
	events []hookEvent
	bodies []string
}

type hookEvent struct {
	Event       string
	Room        struct{ Name string }
	Participant struct{ Identity string }
	Record      look.Record
	State       agent.Status
	Alert       alert.Alert
	Error       struct{ Message string }
}

func (r *hookReceiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := livekitwebhook.Receive(req, r.keys)
	if err != nil {
		r.t.Errorf("webhook: %v", err)
		return
	}
	var e hookEvent
	if err := json.Unmarshal(body, &e); err != nil {
		r.t.Errorf("webhook: %v", err)
	}
	r.mu.Lock()
	r.events = append(r.events, e)
	r.bodies = append(r.bodies, string(body))
	r.mu.Unlock()
}

// of are the events of a name.
func (r *hookReceiver) of(name string) (out []hookEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Event == name {
			out = append(out, e)
		}
	}
	return out
}

// TestOutputs: a real bot's comments are stored and posted; the next bot shows
// them to late joiners, on the page and in the room.
func TestOutputs(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, store := range []string{history.StoreFile, history.StoreSQLite} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			h := &fixture{t: t, url: h.url, keys: h.keys}
			h.camera(store, "")
			receiver := &hookReceiver{t: t, keys: auth.NewSimpleKeyProvider(h.keys.APIKey, h.keys.APISecret)}
			server := httptest.NewServer(receiver)
			t.Cleanup(server.Close)
			cfg := configs.Default()
			cfg.Pacing.InitialDelay, cfg.Agent.History.Comments = time.Second, 5
			cfg.Agent.Repeats = "allow"
			cfg.Agent.History.Store, cfg.Agent.History.Path = store, filepath.Join(t.TempDir(), "store")
			cfg.Agent.Webhook.URLs = []webhook.URL{{URL: server.URL}}
			cfg.Agent.Webhook.APIKey = h.keys.APIKey
			cfg.Agent.Webhook.APISecret = redact.Secret(h.keys.APISecret)
			cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.url, store
			live := func(body func(ctx context.Context, b *bot.Bot)) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				require.NoError(t, bot.WithOutputs(ctx, cfg.Outputs(), zerolog.Nop(), func(out *bot.Outputs) error {
					b, err := bot.New(bot.Options{Settings: cfg.Bot(), Keys: h.keys, LoopbackOnly: true, Outputs: out, Log: zerolog.Nop()})
					if err != nil {
						return err
					}
					ended := make(chan error, 1)
					go func() { ended <- b.Run(ctx) }()
					body(ctx, b)
					cancel()
					return <-ended
				}))
			}
			live(func(_ context.Context, b *bot.Bot) {
				require.Eventually(t, func() bool { return len(b.Hub.History()) >= 2 }, 2*patience, 50*time.Millisecond)
			})

			r, err := history.OpenReader(t.Context(), cfg.Agent.History.Path)
			require.NoError(t, err)
			var kept []history.Entry
			for e, err := range r.Entries(t.Context(), history.Query{Room: store, Comments: true}) {
				require.NoError(t, err)
				kept = append(kept, e)
			}
			require.NoError(t, r.Close())
			require.GreaterOrEqual(t, len(kept), 2)
			for _, e := range kept {
				require.Equal(t, cfg.Agent.LiveKit.Identity, e.Identity)
				var words strings.Builder
				last := 0.0
				for _, w := range e.Words {
					words.WriteString(w.Text)
					require.GreaterOrEqual(t, w.At, last)
					last = w.At
				}
				require.Equal(t, e.Record.Text, strings.TrimSpace(words.String()))
				if e.Record.Outcome == look.OutcomeSpoken {
					require.Greater(t, last, 0.3, "the words come as they are spoken")
				}
			}
			finished := receiver.of(webhook.EventCommentFinished)
			require.Len(t, finished, len(kept), "each stored comment is posted")
			for i, e := range finished {
				require.Equal(t, []string{store, cfg.Agent.LiveKit.Identity, kept[i].Record.Text}, []string{e.Room.Name, e.Participant.Identity, e.Record.Text})
			}
			require.NotEmpty(t, receiver.of(webhook.EventStateChanged))

			// The next bot in the room.
			live(func(ctx context.Context, b *bot.Bot) {
				require.Eventually(t, func() bool { return len(b.Hub.History()) >= len(kept) }, patience, 10*time.Millisecond)
				require.Equal(t, kept[0].Record.Text, b.Hub.History()[0].Text)
				require.Zero(t, b.Hub.History()[0].Cycle)
				require.Eventually(t, func() bool { return b.Room.CurrentRoom() != nil }, patience, 10*time.Millisecond)
				token, err := conn.ViewerToken(h.keys, conn.Person{Room: store, Identity: "late"})
				require.NoError(t, err)
				late := lksdk.NewRoom(lksdk.NewRoomCallback())
				require.NoError(t, late.JoinWithContextAndToken(ctx, h.url, token, lksdk.WithAutoSubscribe(false), lksdk.WithDisableTURN()))
				defer late.Disconnect()
				require.Eventually(t, func() bool {
					return b.Room.CurrentRoom().GetParticipantByIdentity("late") != nil
				}, patience, 10*time.Millisecond)
				var answer *string
				require.Eventually(t, func() bool { // a busy machine may miss the library's time limit of an acknowledgement
					answer, err = late.LocalParticipant.PerformRpc(lksdk.PerformRpcParams{
						DestinationIdentity: cfg.Agent.LiveKit.Identity, Method: "touchline.history",
					})
					return err == nil
				}, patience, 10*time.Millisecond)
				var said control.History
				require.NoError(t, json.Unmarshal([]byte(*answer), &said))
				require.Equal(t, kept[0].Record.Text, said.Comments[0].Text)

				_, body := get(t, strings.Split(h.page(b, cfg), "#")[0]+"metrics")
				for _, name := range []string{
					"touchline_history_written_total", "touchline_history_lost_total 0", "touchline_webhook_sent_total",
					"touchline_webhook_failed_total 0", "touchline_webhook_dropped_total 0",
				} {
					require.Contains(t, body, name)
				}
			})
		})
	}
}

// TestOutputsThatCannotBe: wrong outputs end the start, with the remedy.
func TestOutputsThatCannotBe(t *testing.T) {
	body := func(*bot.Outputs) error { return io.ErrUnexpectedEOF }
	cfg := configs.Default()
	require.ErrorIs(t, bot.WithOutputs(t.Context(), cfg.Outputs(), zerolog.Nop(), body), io.ErrUnexpectedEOF)
	cfg.Agent.Webhook.URLs = []webhook.URL{{URL: "http://127.0.0.1:9/"}}
	require.ErrorContains(t, bot.WithOutputs(t.Context(), cfg.Outputs(), zerolog.Nop(), body), "TOUCHLINE_AGENT_WEBHOOK_API_KEY")
	cfg = configs.Default()
	cfg.Agent.History.Store, cfg.Agent.History.Path = history.StoreSQLite, t.TempDir()
	require.ErrorContains(t, bot.WithOutputs(t.Context(), cfg.Outputs(), zerolog.Nop(), body), "open the history")
}
