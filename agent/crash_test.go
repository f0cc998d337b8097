package agent_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/agenttest"
	"touchline/agent/look"
	"touchline/agent/settings"
	agentspeech "touchline/agent/speech"
	"touchline/inference"
	"touchline/internal/rescue"
	"touchline/media"
	"touchline/media/delay"
	"touchline/media/window"
	"touchline/pacing"
)

// crash is which method panics, once it is time. Only one does, in one place.
type crash struct {
	where string
	from  time.Time
}

func (c *crash) at(where string) {
	if where == c.where && time.Now().After(c.from) {
		panic("crash in " + where)
	}
}

type crashingCamera struct {
	*agenttest.Camera
	c *crash
}

func (x crashingCamera) ReadFrame(ctx context.Context) (media.EncodedFrame, error) {
	x.c.at("ReadFrame")
	return x.Camera.ReadFrame(ctx)
}

func (x crashingCamera) RequestKeyFrame() { x.c.at("RequestKeyFrame"); x.Camera.RequestKeyFrame() }

type crashingDecoder struct {
	*agenttest.Decoder
	c *crash
}

func (x crashingDecoder) Run(ctx context.Context) error {
	if x.c.where != "Decoder.Run" {
		return x.Decoder.Run(ctx)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(x.c.from) + time.Second):
		x.c.at("Decoder.Run")
	}
	return nil
}

func (x crashingDecoder) Decode(f media.EncodedFrame, sample bool) error {
	x.c.at("Decode")
	if x.c.where == "RequestKeyFrame" {
		return errors.New("expected a key frame")
	}
	return x.Decoder.Decode(f, sample)
}

func (x crashingDecoder) Latest(ctx context.Context) (media.VideoFrame, error) {
	x.c.at("Latest")
	return x.Decoder.Latest(ctx)
}

type crashingScreen struct {
	*agenttest.Screen
	c *crash
}

func (x crashingScreen) WriteFrame(f delay.OutFrame) (time.Time, error) {
	x.c.at("WriteFrame")
	return x.Screen.WriteFrame(f)
}

type crashingVoice struct {
	*agenttest.Voice
	c *crash
}

func (x crashingVoice) NewUtterance(ev agentspeech.Events) agentspeech.Sound {
	x.c.at("NewUtterance")
	return crashingSpeech{x.Voice.NewUtterance(ev), x.c}
}

type crashingSpeech struct {
	agentspeech.Sound
	c *crash
}

func (x crashingSpeech) Write(pcm media.PCM) (time.Duration, error) {
	x.c.at("Write")
	return x.Sound.Write(pcm)
}

func (x crashingSpeech) End() time.Duration { x.c.at("End"); return x.Sound.End() }
func (x crashingSpeech) Start(at time.Time) { x.c.at("Start"); x.Sound.Start(at) }

type crashingReader struct {
	*agenttest.Reader
	c *crash
}

func (x crashingReader) Caption(v agent.Caption)       { x.c.at("Caption"); x.Reader.Caption(v) }
func (x crashingReader) Record(v look.Record)          { x.c.at("Record"); x.Reader.Record(v) }
func (x crashingReader) State(v agent.Status)          { x.c.at("State"); x.Reader.State(v) }
func (x crashingReader) Frames(uint64, []window.Frame) { x.c.at("Frames") }

type crashingEngine struct {
	*agenttest.Engine
	c *crash
}

func (x crashingEngine) Status() inference.Status { x.c.at("Status"); return x.Engine.Status() }

func (x crashingEngine) NewSession() (inference.Session, error) {
	s, err := x.Engine.NewSession()
	return crashingConversation{s, x.c}, err
}

type crashingConversation struct {
	inference.Session
	c *crash
}

func (x crashingConversation) Observe(inference.Frame) { x.c.at("Observe") }
func (x crashingConversation) Close() error            { x.c.at("Close"); return x.Session.Close() }

func (x crashingConversation) Generate(ctx context.Context, p inference.Prompt) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		x.c.at("Generate")
		// As an engine with goroutines of its own hands it on.
		if err := rescue.Call(func() error { x.c.at("a rescued Generate"); return nil }); err != nil {
			yield(inference.Chunk{}, err)
			return
		}
		x.Session.Generate(ctx, p)(yield)
	}
}

// TestCrashEndsTheSession: a panic in whatever a session is given, in whichever
// of its goroutines and with whichever lock held, is the session's error, and
// ends it whole: the bubble holds no goroutine afterwards.
func TestCrashEndsTheSession(t *testing.T) {
	for _, where := range []string{
		"ReadFrame", "RequestKeyFrame", "Decoder.Run", "Decode", "Latest", "WriteFrame",
		"NewUtterance", "Write", "End", "Start", "Caption", "Record", "State", "Frames",
		"Status", "Observe", "Generate", "a rescued Generate", "Close",
	} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &crash{where: where, from: time.Now().Add(20 * time.Second)}
				camera := &agenttest.Camera{FPS: 30, Rand: rand.New(rand.NewPCG(1, 1))}
				dec := &agenttest.Decoder{}
				voice := agenttest.NewVoice()
				reader := &agenttest.Reader{}
				cfg := settings.DefaultConfig()
				cfg.Repeats = settings.RepeatsAllow
				s, err := agent.New(agent.Options{
					Agent: cfg, Pacing: pacing.DefaultConfig(), Media: media.DefaultConfig(),
					Inference: inference.DefaultConfig(), Profiles: profiles(),
					Engine: agenttest.Open(crashingEngine{&agenttest.Engine{Answer: steady(time.Second, 2*time.Second)}, c}),
					Input:  crashingCamera{camera, c},
					NewDecoder: func(sinks agent.DecoderSinks) (agent.Decoder, error) {
						dec.OnPicture = sinks.Picture
						return crashingDecoder{dec, c}, nil
					},
					Video: crashingScreen{&agenttest.Screen{}, c}, Audio: crashingVoice{voice, c},
					Texts: []agent.TextOutput{crashingReader{reader, c}}, Log: zerolog.Nop(),
				})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				vctx, hush := context.WithCancel(ctx)
				sung := make(chan struct{})
				go func() { defer close(sung); voice.Run(vctx) }()
				if where == "Close" { // it is called at the end only
					time.AfterFunc(30*time.Second, cancel)
				}
				err = rescue.Call(func() error { return s.Run(ctx) })
				hush()
				<-sung
				p, ok := rescue.Of(err)
				require.True(t, ok, "%v", err)
				require.Equal(t, "crash in "+where, p.Value)
				require.NotErrorIs(t, err, rescue.ErrStuck)
				if where != "RequestKeyFrame" {
					require.NotEmpty(t, reader.Captions(), "it commented before")
				}
			})
		})
	}
}
