//go:build integration

package room_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/agent"
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

// TestPythonSDK: a reader with LiveKit's Python SDK gets what somebody says in the speaker's name, in streams and in the older
// packets, with its track, segment and language.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	require.DirExists(t, pythonSDK, "run make setup-test")
	s := startServer(t)
	bot := startBot(t, s, nil)
	captions := control.NewCaptions(bot, false, testLog(t))
	run(t, func(ctx context.Context) error { _ = captions.Run(ctx); return nil })
	ann := joinSpeaker(t, s, speakerToken(t, s, "ann", 0), 2, webrtc.MimeTypeOpus, voicePace)
	track := ann.pub.SID()

	token, err := conn.ViewerToken(s.keys(), conn.Person{Room: "match", Identity: "reader"})
	require.NoError(t, err)
	path, err := filepath.Abs(pythonSDK)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/reader.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "LIVEKIT_URL="+s.URL(), "LIVEKIT_TOKEN="+token)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var mu sync.Mutex
	var lines []pythonLine
	read := make(chan struct{})
	go func() {
		defer close(read)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var l pythonLine
			if json.Unmarshal(scan.Bytes(), &l) == nil {
				mu.Lock()
				lines = append(lines, l)
				mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait() // it was killed
	})
	of := func(kind string) (list []pythonLine) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines {
			if l.Kind == kind {
				list = append(list, l)
			}
		}
		return list
	}
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
