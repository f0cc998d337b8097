//go:build integration

package bot_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/bot"
	"touchline/agent/jobs"
	"touchline/agent/look"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/webhook"
	"touchline/agent/worker"
	"touchline/configs"
	"touchline/inference"
	"touchline/internal/e2e/stage"
	"touchline/internal/redact"
	"touchline/internal/rescue"
	"touchline/media/window"
)

// bomb is a text output that panics in one of its methods.
type bomb struct{ where string }

func (b bomb) at(where string) {
	if b.where == where {
		panic("crash in " + where)
	}
}

func (b bomb) Caption(agent.Caption)         { b.at("Caption") }
func (b bomb) Record(look.Record)            { b.at("Record") }
func (b bomb) Frames(uint64, []window.Frame) { b.at("Frames") }

func (b bomb) State(s agent.Status) {
	if s.Activity != agent.ActivityReconnecting { // that is reported before Run
		b.at("State")
	}
}

// leavings records the reports of jobs before they left.
type leavings struct {
	mu   sync.Mutex
	errs []error
	in   []bool // who was in the room when it was said
}

func (l *leavings) add(err error, in bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs, l.in = append(l.errs, err), append(l.in, in)
}

// TestCrashOfOneRoomLeavesTheOtherAlone runs two rooms in this process, on a
// real server, and has the code of one panic in one place after the other: in
// goroutines of the bot, of the client library and of the codec's reader.
func TestCrashOfOneRoomLeavesTheOtherAlone(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	cfg := configs.Default()
	cfg.Inference.Engine, cfg.Agent.Repeats = "scene", "allow"
	cfg.Pacing.InitialDelay = time.Second
	cfg.Agent.ChangeThreshold = 0
	cfg.Agent.LiveKit.APIKey, cfg.Agent.LiveKit.APISecret = h.keys.APIKey, redact.Secret(h.keys.APISecret)
	h.camera("calm", "")
	h.camera("crashing", "")

	calm := &stage.Reader{}
	bombs := map[string]agent.TextOutput{"calm": calm}
	var hooks map[string]room.Hooks
	manager, err := jobs.New(jobs.Options{
		Settings: cfg.Bot(), Configure: cfg.Job, LoopbackOnly: true, Log: zerolog.Nop(),
		Texts: func(job worker.Job) []agent.TextOutput { return []agent.TextOutput{bombs[job.ID]} },
		Hooks: func(job worker.Job) room.Hooks { return hooks[job.ID] },
	})
	require.NoError(t, err)
	h.run("engines", manager.Keep)
	api := lksdk.NewRoomServiceClient(h.url, h.keys.APIKey, h.keys.APISecret)
	inRoom := func(name, identity string) bool {
		_, err := api.GetParticipant(context.Background(), &livekit.RoomParticipantIdentity{Room: name, Identity: identity})
		return err == nil
	}
	job := func(id, roomName string, reported *leavings) worker.Job {
		joined := false
		return worker.Job{
			ID: id, Room: roomName, Identity: "bot", Name: "Bot", URL: h.url,
			Joined:  func() { joined = true },
			Leaving: func(err error) { reported.add(err, joined && inRoom(roomName, "bot")) },
		}
	}
	h.run("calm job", func(ctx context.Context) error { return manager.Run(ctx, job("calm", "calm", &leavings{})) })
	commented := func() {
		from := len(calm.Records())
		require.Eventually(t, func() bool { return len(calm.Records()) > from }, patience, 20*time.Millisecond,
			"the other room goes on commenting")
	}
	commented()

	// A person in the crashing room, who sends data.
	token, err := conn.ViewerToken(h.keys, conn.Person{Room: "crashing", Identity: "talker"})
	require.NoError(t, err)
	talker := lksdk.NewRoom(lksdk.NewRoomCallback())
	require.NoError(t, talker.JoinWithToken(h.url, token, lksdk.WithAutoSubscribe(false)))
	defer talker.Disconnect()
	h.run("talker", func(ctx context.Context) error {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				_ = talker.LocalParticipant.PublishDataPacket(lksdk.UserData([]byte("hello")), lksdk.WithDataPublishReliable(true))
			}
		}
	})

	boom := func(where string) { panic("crash in " + where) }
	hooks = map[string]room.Hooks{
		"Created": {Created: func(*lksdk.Room) { boom("Created") }},
		"Joined":  {Joined: func(*lksdk.Room) { boom("Joined") }},
		"Data":    {Data: func(lksdk.DataPacket, lksdk.DataReceiveParams) { boom("Data") }},
	}
	for _, where := range []string{"Caption", "Record", "State", "Frames", "Created", "Joined", "Data"} {
		t.Run(where, func(t *testing.T) {
			bombs[where] = bomb{where}
			var reported *leavings
			err := rescue.ErrStuck
			for tries := 3; tries > 0 && errors.Is(err, rescue.ErrStuck); tries-- { // a busy machine takes longer than rescue.Grace
				reported = &leavings{}
				err = rescue.Call(func() error { return manager.Run(t.Context(), job(where, "crashing", reported)) })
			}
			p, ok := rescue.Of(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "crash in "+where, p.Value)
			require.NotEmpty(t, reported.errs, "the reason is reported before the agent leaves")
			_, ok = rescue.Of(reported.errs[0])
			require.True(t, ok, "%v", reported.errs[0])
			if where != "Created" && where != "Joined" && where != "State" { // before or while it joins
				require.True(t, reported.in[0], "it was still in the room")
			}
			require.Eventually(t, func() bool { return !inRoom("crashing", "bot") }, patience, 20*time.Millisecond)
			commented()
		})
	}
}

// faulty is an engine that panics in a goroutine of the voice, which runs it.
type faulty struct{ *stage.Engine }

func (f faulty) NewSession() (inference.Session, error) {
	s, err := f.Engine.NewSession()
	return faultySession{s}, err
}

type faultySession struct{ inference.Session }

func (faultySession) Generate(context.Context, inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(func(inference.Chunk, error) bool) { panic("crash in Generate") }
}

// TestCrashOfAnEngineEndsItsBot: also where the engine runs in a goroutine of
// the voice.
func TestCrashOfAnEngineEndsItsBot(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	cfg := configs.Default()
	cfg.Agent.ChangeThreshold = 0
	h.camera("match", "")
	engine, err := bot.WithVoice(faulty{stage.NewEngine(1, time.Second, time.Second)}, cfg.Inference.Voice, zerolog.Nop())
	require.NoError(t, err)
	bot, _ := h.bot(cfg, "match", engine)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, ok := rescue.Of(bot.Run(ctx))
	require.True(t, ok)
	require.Equal(t, "crash in Generate", p.Value)
	require.Contains(t, string(p.Stack), "voice.(*Room).Answer", "it ran in the voice's goroutine")
}

// TestCrashIsReported: webhooks report the panic of a room with its message, but not its
// place in the code.
func TestCrashIsReported(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.camera("match", "")
	receiver := &hookReceiver{t: t, keys: auth.NewSimpleKeyProvider(h.keys.APIKey, h.keys.APISecret)}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	cfg := configs.Default()
	cfg.Agent.ChangeThreshold = 0
	cfg.Agent.LiveKit.APIKey, cfg.Agent.LiveKit.APISecret = h.keys.APIKey, redact.Secret(h.keys.APISecret)
	cfg.Agent.Webhook.URLs = []webhook.URL{{URL: server.URL}}
	err := bot.WithOutputs(t.Context(), cfg.Outputs(), zerolog.Nop(), func(out *bot.Outputs) error {
		manager, err := jobs.New(jobs.Options{
			Settings: cfg.Bot(), Configure: cfg.Job, Outputs: out, LoopbackOnly: true, Log: zerolog.Nop(),
			Texts: func(worker.Job) []agent.TextOutput { return []agent.TextOutput{bomb{"Record"}} },
		})
		require.NoError(t, err)
		h.run("engines", manager.Keep)
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		return rescue.Call(func() error {
			return manager.Run(ctx, worker.Job{
				ID: "job", Room: "match", Identity: "bot", Name: "Bot", URL: h.url, Joined: func() {}, Leaving: func(error) {},
			})
		})
	})
	_, crash := rescue.Of(err)
	require.True(t, crash, "%v", err)
	errs := receiver.of(webhook.EventError)
	require.Len(t, errs, 1)
	require.Equal(t, []string{"match", "bot"}, []string{errs[0].Room.Name, errs[0].Participant.Identity})
	require.Equal(t, "the code panicked: crash in Record", errs[0].Error.Message)
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	for _, body := range receiver.bodies {
		require.NotRegexp(t, `goroutine \d|\.go:\d`, body, "no stack")
	}
}

// burning is a network that panics.
type burning struct{}

func (burning) RoundTrip(*http.Request) (*http.Response, error) { panic("crash on the way") }

// TestCrashOfAnOutputEndsNoRoom: the webhooks are switched off, the room continues.
func TestCrashOfAnOutputEndsNoRoom(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.camera("match", "")
	cfg := configs.Default()
	cfg.Agent.ChangeThreshold, cfg.Pacing.InitialDelay = 0, time.Second
	cfg.Agent.Repeats = "allow"
	cfg.Agent.Webhook.URLs = []webhook.URL{{URL: "http://receiver.test/"}}
	sender, err := webhook.New(webhook.Options{
		Config: cfg.Agent.Webhook, APIKey: h.keys.APIKey, APISecret: h.keys.APISecret, Transport: burning{}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	h.run("webhooks", sender.Run)
	cfg.Agent.LiveKit.URL, cfg.Agent.LiveKit.Room = h.url, "match"
	reader := &stage.Reader{}
	bot, err := bot.New(bot.Options{
		Settings: cfg.Bot(), Keys: h.keys, LoopbackOnly: true, Outputs: bot.OutputsTo(sender), Texts: []agent.TextOutput{reader}, Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	h.run("bot", bot.Run)
	require.Eventually(t, func() bool { return sender.Off() == 1 }, patience, 20*time.Millisecond)
	from := len(reader.Records())
	require.Eventually(t, func() bool { return len(reader.Records()) > from+1 }, 2*patience, 20*time.Millisecond, "it goes on commenting")
	require.Positive(t, sender.Dropped())
	require.Zero(t, sender.Sent())
}
