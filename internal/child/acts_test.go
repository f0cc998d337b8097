//go:build !race

// The race detector needs more memory than the programs have.

package child_test

import (
	"debug/elf"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/sphinx"
	"touchline/inference/voice"
	"touchline/internal/child"
	"touchline/media/source"
	"touchline/media/source/audio"
	"touchline/media/source/file"
)

// TestActsOfEachProgram: the parts of Touchline that start programs start one that tries the forbidden acts, in place of ffmpeg, ffprobe,
// flite, espeak-ng and pocketsphinx. It can do none of them within the limits of each part; a script can start programs, and nothing
// else. As root the acts are tried as another user.
func TestActsOfEachProgram(t *testing.T) {
	if os.Getuid() == 0 {
		child.AsNobody(t)
		return
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	code, err := os.ReadFile(self)
	require.NoError(t, err)
	acts := filepath.Join(dir, fmt.Sprint(child.ActsProgram, child.Landlock(t)))
	require.NoError(t, os.WriteFile(acts, code, 0o755))
	programs, scripts, model := filepath.Join(dir, "bin"), filepath.Join(dir, "scripts"), filepath.Join(dir, "model")
	for _, folder := range []string{programs, scripts, filepath.Join(model, "en-us")} {
		require.NoError(t, os.MkdirAll(folder, 0o755))
	}
	for _, name := range []string{"ffmpeg", "ffprobe", "flite", "espeak-ng", "pocketsphinx_batch"} {
		require.NoError(t, os.Symlink(acts, filepath.Join(programs, name)))
	}
	for name, text := range map[string]string{
		"scripts/ffprobe":          fmt.Sprintf("#!/bin/sh\nexec %s %s\n", loader(t, self), acts),
		"x.mp4":                    "no clip",
		"x.m3u8":                   "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nx.mp4\n#EXT-X-ENDLIST\n",
		"model/en-us/mdef":         "",
		"model/en-us-phone.lm.bin": "",
		"model/cmudict-en-us.dict": "hey HH EY\nnow N AW\nplease P L IY Z\nstop S T AA P\nthanks TH AE NG K S\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	plays := func(a source.Address) func() error {
		return func() error {
			clip, err := file.New(file.Options{Access: source.Access{Address: a, Allow: source.AllowEverything(), Now: time.Now}})
			require.NoError(t, err)
			return clip.Pull(t.Context(), source.Sink{})
		}
	}
	says := func(program string) func() error {
		return func() error {
			v, err := voice.New(inference.VoiceConfig{Program: program}, zerolog.Nop())
			require.NoError(t, err)
			_, err = v.Say(t.Context(), "Goal!", "en")
			return err
		}
	}
	stream := source.Address{Kind: source.HTTP, URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: "/x.m3u8"}}
	for _, tt := range []struct {
		name   string
		start  func() error
		script bool
	}{
		{"ffprobe and ffmpeg with a file", plays(source.Address{Kind: source.File, Path: filepath.Join(dir, "x.mp4")}), false},
		{"ffprobe and ffmpeg with HLS", plays(stream), false},
		{"ffmpeg for the sound of cameras", func() error {
			a, err := audio.NewAAC(48000, time.Now, func(source.Opus) {})
			require.NoError(t, err)
			return a.Run(t.Context())
		}, false},
		{"flite", says("flite"), false},
		{"espeak-ng", says("espeak-ng"), false},
		{"pocketsphinx", func() error {
			r, err := sphinx.Open(sphinx.Options{Orders: []string{"stop"}, WakeWords: []string{"hey"}, Model: model})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			for _, err := range r.Transcribe(t.Context(), make([]float32, 16000), inference.Hearing{Language: "en"}) {
				if err != nil {
					return err
				}
			}
			return nil
		}, false},
		{"a script with a file", plays(source.Address{Kind: source.File, Path: filepath.Join(dir, "x.m3u8")}), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := programs
			if tt.script {
				path = scripts + ":" + programs
			}
			t.Setenv("PATH", path)
			err := tt.start()
			require.Error(t, err)
			if tt.script {
				require.Regexp(t, "not refused: start a program($|[^,])", err.Error())
				return
			}
			if refused := fmt.Sprint("exit status ", child.AllRefused); strings.Contains(err.Error(), refused) {
				child.Skipped(t, "acts that only a newer Landlock refuses")
				return
			}
			require.ErrorContains(t, err, fmt.Sprint("exit status ", child.AllTried))
		})
	}
}

// loader returns the path of a program's loader.
func loader(t *testing.T, path string) string {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	name, err := f.Section(".interp").Data()
	require.NoError(t, err)
	return string(name[:len(name)-1])
}
