//go:build integration

package room_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent"
	"touchline/agent/room"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
)

// pythonSDK is where scripts/setup.sh installs LiveKit's Python SDK.
const pythonSDK = "../../bin/livekit-python"

// pythonLine is a line of testdata/reader.py.
type pythonLine struct {
	Kind, Text, Identity, Track, Language, ID string
	Final                                     bool
	Attributes                                map[string]string
	Tracks                                    []string
}

// pythonReader is a process with LiveKit's Python SDK in some rooms.
type pythonReader struct {
	mu    sync.Mutex
	lines []pythonLine
	ended chan struct{} // the process has ended
}

// startPython starts testdata/reader.py as "reader" in rooms.
func startPython(t *testing.T, s *server, rooms ...string) *pythonReader {
	t.Helper()
	require.DirExists(t, pythonSDK, "run make setup-test")
	var tokens []string
	for _, room := range rooms {
		token, err := conn.ViewerToken(s.keys(), conn.Person{Room: room, Identity: "reader"})
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	path, err := filepath.Abs(pythonSDK)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/reader.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "LIVEKIT_URL="+s.URL(), "LIVEKIT_TOKENS="+strings.Join(tokens, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	r := &pythonReader{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var l pythonLine
			if json.Unmarshal(scan.Bytes(), &l) == nil {
				r.mu.Lock()
				r.lines = append(r.lines, l)
				r.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.ended
		_ = cmd.Wait() // it was killed
	})
	return r
}

// of returns the lines of a kind.
func (r *pythonReader) of(kind string) (list []pythonLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if l.Kind == kind {
			list = append(list, l)
		}
	}
	return list
}

// reads waits until the reader has a text, in a stream or a segment, and fails when its process has ended.
func (r *pythonReader) reads(t *testing.T, kind, text string) {
	t.Helper()
	eventually(t, func() bool {
		select {
		case <-r.ended:
			return true
		default:
		}
		return slices.ContainsFunc(r.of(kind), func(l pythonLine) bool { return l.Text == text })
	}, kind+" "+text)
	select {
	case <-r.ended:
		t.Fatal("the client's process aborted")
	default:
	}
}

// TestPythonSDK: a reader with LiveKit's Python SDK gets what somebody says in the speaker's name, in streams and in the older
// packets, with its track, segment and language.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bot := startBot(t, s, nil)
	captions := control.NewCaptions(bot, false, testLog(t))
	run(t, func(ctx context.Context) error { _ = captions.Run(ctx); return nil })
	ann := joinSpeaker(t, s, speakerToken(t, s, "ann", 0), 2, webrtc.MimeTypeOpus, voicePace)
	track := ann.pub.SID()

	reader := startPython(t, s, "match")
	of := reader.of
	eventually(t, func() bool {
		return slices.ContainsFunc(of("knows"), func(l pythonLine) bool { return slices.Contains(l.Tracks, track) }) &&
			bot.CurrentRoom() != nil && bot.CurrentRoom().GetParticipantByIdentity("reader") != nil
	}, "the reader sees the microphone")

	texts := []string{"What", "What a", "What a goal!"}
	for i, text := range texts {
		captions.Heard(agent.Heard{
			Segment: "SG_1", Identity: "ann", Track: track, Text: text, Language: "en", Final: i == 2, Caption: true,
		})
		eventually(t, func() bool { return len(of("stream")) == i+1 && len(of("segment")) == i+1 }, "a text")
	}
	for i, text := range texts {
		final := i == 2
		require.Equal(t, pythonLine{
			Kind: "segment", Text: text, Identity: "ann", Track: track, Language: "en", ID: "SG_1", Final: final,
		}, of("segment")[i])
		stream := of("stream")[i]
		require.Equal(t, text, stream.Text)
		require.Equal(t, "ann", stream.Identity)
		require.Equal(t, "SG_1", stream.Attributes["lk.segment_id"])
		require.Equal(t, track, stream.Attributes["lk.transcribed_track_id"])
		require.Equal(t, map[bool]string{true: "true", false: "false"}[final], stream.Attributes["lk.transcription_final"])
		require.Equal(t, "en", stream.Attributes[control.AttributeLanguage])
	}
}

// TestPythonSDKWithoutTracks: comments reach a Python client and leave it alive while the bot publishes no track: it lost the right to
// publish, has only a voice, or has just joined ten rooms.
func TestPythonSDKWithoutTracks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var names []string
	for n := range 10 {
		names = append(names, "room-"+strconv.Itoa(n))
	}
	reader := startPython(t, s, names...)
	eventually(t, func() bool { return len(reader.of("joined")) == len(names) }, "the reader is in the rooms")
	for _, name := range names {
		bot := startBot(t, s, func(o *room.Options) { o.Room, o.Relay = name, false })
		captions := control.NewCaptions(bot, false, testLog(t))
		run(t, func(ctx context.Context) error { _ = captions.Run(ctx); return nil })
		run(t, pace(20*time.Millisecond, func(n uint32) error { // from before the join
			captions.Caption(agent.Caption{Segment: fmt.Sprint(name, n), Text: fmt.Sprint(name, " ", n/50), Spoken: n%2 == 0, Final: true})
			return nil
		}))
	}
	for _, name := range names {
		reader.reads(t, "stream", name+" 1")
		reader.reads(t, "segment", name+" 1")
	}
	api := lksdk.NewRoomServiceClient(s.URL(), s.APIKey(), s.APISecret())
	_, err := api.UpdateParticipant(t.Context(), &livekit.UpdateParticipantRequest{Room: names[0], Identity: "bot", Permission: &livekit.ParticipantPermission{
		CanSubscribe: true, CanPublishData: true, CanUpdateMetadata: true,
	}})
	require.NoError(t, err)
	streams := len(reader.of("stream"))
	eventually(t, func() bool { return len(reader.of("stream")) > streams+1000 }, "captions go on")
	reader.reads(t, "stream", names[0]+" 3")
}
