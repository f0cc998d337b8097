package audioapi_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"touchline/agent/audioapi"
	"touchline/inference"
	"touchline/inference/live/livetest"
	"touchline/internal/resample"
	"touchline/internal/wav"
)

// tape keeps the sound of its utterances.
type tape struct {
	*livetest.Recognizer

	mu     sync.Mutex
	sounds [][]float32
}

func (t *tape) Listen(context.Context, inference.Hearing) (inference.Utterance, error) {
	return &taped{tape: t}, nil
}

type taped struct {
	tape  *tape
	sound []float32
}

func (u *taped) Hear(_ context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound...)
	return inference.Transcript{Text: "heard"}, nil
}

func (u *taped) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	t, err := u.Hear(ctx, sound)
	t.Final = true
	u.tape.mu.Lock()
	defer u.tape.mu.Unlock()
	u.tape.sounds = append(u.tape.sounds, u.sound)
	return t, err
}

func (*taped) Close() error { return nil }

// TestPacketsAreOneSound: packets of a telephone are converted as one sound, without a click where they meet, and without a filter.
func TestPacketsAreOneSound(t *testing.T) {
	r := &tape{Recognizer: &livetest.Recognizer{}}
	srv, _ := transcribe(t, r)
	phone := make([]float32, 8000)
	for i := range phone {
		at := float64(i) / 8000
		phone[i] = float32(0.2*math.Sin(2*math.Pi*200*at) + 0.2*math.Sin(2*math.Pi*3000*at)) // a band of telephones has no 200 Hz
	}
	c := dial(t, srv, "/ws/transcribe?sample_rate=8000")
	require.InDelta(t, 8000, c.next()["sample_rate"], 0)
	for piece := range slices.Chunk(bytes16(phone), 320) {
		require.NoError(t, c.WriteMessage(websocket.BinaryMessage, piece))
	}
	c.say(map[string]any{"action": "flush"})
	c.until("is_final", true)
	want, err := resample.All(phone, 8000, inference.RecognizerRate)
	require.NoError(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.sounds, 1)
	got := r.sounds[0]
	require.InDelta(t, len(want), len(got), 200, "the end of the filter may be missing")
	for i := range min(len(want), len(got)) - 200 {
		require.InDelta(t, want[i], got[i], 2e-4, "sample %d", i)
	}
}

// TestSilentPacketsAreJudged: the detector judges packets of any length, as those of 7,200 samples that the original sends to a network
// which takes 512; silence is not heard.
func TestSilentPacketsAreJudged(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	c := dial(t, srv, "/ws/transcribe?use_server_vad=1")
	c.next()
	send := func(sound []float32) {
		for piece := range slices.Chunk(bytes16(sound), 2*7200) {
			require.NoError(t, c.WriteMessage(websocket.BinaryMessage, piece))
		}
	}
	send(livetest.Say(9*time.Second, 0))
	c.say(map[string]any{"action": "flush"})
	require.Empty(t, c.next()["text"])
	require.Empty(t, r.Calls(), "silence")
	send(livetest.Say(time.Second, 600, 0))
	require.Equal(t, "w600", c.until("is_final", true)[0]["text"])
	require.Empty(t, r.Calls()[0].Hearing.Language, "the model finds the language, unless it is told")
}

// TestChannelsAreMixed: both channels of a file are heard.
func TestChannelsAreMixed(t *testing.T) {
	srv, _ := transcribe(t, &livetest.Recognizer{})
	stereo := make([]float32, 2*16000)
	for i := 0; i < len(stereo); i += 2 {
		stereo[i], stereo[i+1] = 600.0/1024, 200.0/1024
	}
	b := wav.Encode(stereo, 16000)
	b[22], b[32] = 2, 4
	status, body := upload(t, srv, transcriptions, b, map[string]string{"model": "test", "response_format": "text"})
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, "w400\n", body)
}

// TestStreamOfOtherRates: a recording at 48 kHz is cut at its pauses, by time and not by samples, and nothing is heard twice.
func TestStreamOfOtherRates(t *testing.T) {
	r := &livetest.Recognizer{}
	srv, _ := transcribe(t, r)
	sound, _, err := wav.Parse(speech())
	require.NoError(t, err)
	slow := make([]float32, 0, 3*len(sound))
	for _, v := range sound {
		slow = append(slow, v, v, v)
	}
	status, body := upload(t, srv, transcriptions+"/stream", wav.Encode(slow, 48000), nil)
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, 2, strings.Count(body, `"is_final":true`), "two utterances: %s", body)
	heard := 0
	for _, call := range r.Calls() {
		if call.Method == "finish" {
			heard += call.Samples
		}
	}
	require.Less(t, heard, len(sound))
}

// TestAClientThatLeavesBreaksNothing: a request whose client goes while the model works ends, and the next one is answered.
func TestAClientThatLeavesBreaksNothing(t *testing.T) {
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	hang := true
	r := &livetest.Recognizer{Before: func(ctx context.Context, _ livetest.Call) error {
		if !hang {
			return nil
		}
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	srv, h := transcribe(t, r)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+transcriptions, strings.NewReader(formOf(speech())))
			if err == nil {
				req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
				var res *http.Response
				if res, err = srv.Client().Do(req); err == nil {
					err = errors.Join(errors.New("it was answered"), res.Body.Close())
				}
			}
			left <- err
		}()
		<-began
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled, "the model stops")
	}
	require.Eventually(t, func() bool { return h.Health().Requests == 0 }, 2*time.Minute, time.Millisecond)
	hang = false
	status, body := upload(t, srv, transcriptions, speech(), map[string]string{"model": "test", "response_format": "text"})
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "w600 w500 w400\n", body)
}

// formOf is a form with a file.
func formOf(file []byte) string {
	return "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ntest\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" + string(file) + "\r\n--b--\r\n"
}

// TestRatesAreBounded: sound whose rate changes with each piece costs a filter for each rate, not for each piece.
func TestRatesAreBounded(t *testing.T) {
	t.Parallel()
	piece := make([]float32, 576)
	sound, filters, err := audioapi.Tune(piece, slices.Repeat([]int{22050, 24000, 16000, 44100, 48000}, 200)...)
	require.NoError(t, err)
	require.Equal(t, 4, filters, "16 kHz needs none")
	require.InDelta(t, 200*576*(16000./22050+16000./24000+1+16000./44100+16000./48000), len(sound), 2000)
	rates := make([]int, 40)
	for i := range rates {
		rates[i] = 8000 + 100*i
	}
	_, filters, err = audioapi.Tune(piece, rates...)
	require.ErrorContains(t, err, "more than 4 sample rates")
	require.Equal(t, 4, filters)
}
