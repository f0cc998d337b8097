package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSay: the program writes a WAV file of the voice, and each error names what is wrong.
func TestSay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "goal.wav")
	stdout, stderr, code := touchline(t, "say", "--voice", "slt", "A goal for the reds! One nil.", path)
	require.Zero(t, code, stderr)
	require.Regexp(t, `goal\.wav: \d\.\d\d s at 16000 Hz, made in `, stdout)
	wav, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "RIFF", string(wav[:4]))
	require.EqualValues(t, 16000, binary.LittleEndian.Uint32(wav[24:]))
	require.EqualValues(t, len(wav)-44, binary.LittleEndian.Uint32(wav[40:]))
	require.Greater(t, len(wav), 2*16000, "a second of sound")

	none := filepath.Join(t.TempDir(), "none.wav")
	for want, args := range map[string][]string{
		`flite has no voice "nope"`:       {"--voice", "nope", "A goal!", none},
		`flite has no voice "nobody"`:     {"--voice", "flite:nobody", "A goal!", none},
		"inference.voice.language: must":  {"--language", "../nl", "A goal!", none},
		"nothing to say":                  {"...", none},
		"no such file or directory":       {"A goal!", filepath.Join(none, "goal.wav")},
		"the text is longer than 64 KiB;": {strings.Repeat("goal ", 14_000), none},
	} {
		_, stderr, code := touchline(t, append([]string{"say"}, args...)...)
		require.Equal(t, 1, code, args)
		require.Contains(t, stderr, want)
		require.NoFileExists(t, none)
	}
}

func TestSayReadsStandardInput(t *testing.T) {
	t.Parallel()
	text, err := (&sayCmd{Text: "-"}).text(strings.NewReader(" A goal!\n"))
	require.NoError(t, err)
	require.Equal(t, "A goal!", text)
	_, err = (&sayCmd{Text: "-"}).text(strings.NewReader(strings.Repeat("goal ", 14_000)))
	require.ErrorContains(t, err, "64 KiB")
}
