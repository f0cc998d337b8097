package voice_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/voice"
)

const espeakTable = `Pty Language       Age/Gender VoiceName          File                 Other Languages
 5  af              --/M      Afrikaans          gmw/af
 5  cmn             --/M      Chinese_(Mandarin,_latin_as_English) sit/cmn              (zh-cmn 5)(zh 5)
 5  en-gb-scotland  --/M      English_(Scotland) gmw/en-GB-scotland   (en 4)
 2  ../../etc       --/M      Bad                x/bad
 5  nb              --/M      Norwegian_Bokmål   gmq/nb               (no 5)
`

func TestListsOfVoices(t *testing.T) {
	t.Parallel()
	require.Equal(t, []voice.Voice{{ID: "flite:kal", Language: "en"}, {ID: "flite:slt", Language: "en"}},
		voice.FliteVoices("Voices available: kal awb_time slt -o\n"))
	list := voice.EspeakVoices(espeakTable)
	require.Equal(t, []voice.Voice{
		{ID: "espeak-ng:af", Language: "af"},
		{ID: "espeak-ng:cmn", Language: "cmn"},
		{ID: "espeak-ng:en-gb-scotland", Language: "en-gb-scotland"},
		{ID: "espeak-ng:nb", Language: "nb"},
	}, list)
	for _, tt := range []struct{ id, language, want string }{
		{"auto", "xx", ""},
		{"espeak-ng:af", "af", ""},
		{"espeak-ng:cmn", "zh-CN", ""},
		{"espeak-ng:nb", "no", ""},
		{"espeak-ng:en-gb-scotland", "en-US", ""},
		{"espeak-ng:en-gb-scotland", "", ""},
		{"espeak-ng:af", "nl", "the voice espeak-ng:af speaks af, not nl"},
		{"flite:slt", "en", `the voice "flite:slt" is not installed`},
	} {
		err := voice.Check(list, tt.id, tt.language)
		if tt.want == "" {
			require.NoError(t, err, tt.id)
		} else {
			require.EqualError(t, err, tt.want)
		}
	}
}

func FuzzVoices(f *testing.F) {
	f.Add("Voices available: kal awb rms slt")
	f.Add(espeakTable)
	f.Fuzz(func(t *testing.T, list string) {
		for _, v := range append(voice.FliteVoices(list), voice.EspeakVoices(list)...) {
			_, name, ok := strings.Cut(v.ID, ":")
			require.True(t, ok)
			require.False(t, name != "" && strings.ContainsAny(name[:1], "-./"), "%q would be an option or a path", name)
			require.NoError(t, voice.Check([]voice.Voice{v}, v.ID, v.Language))
		}
	})
}

// TestVoiceOfAPrompt: each prompt may name another voice. An unknown program leaves the configured one.
func TestVoiceOfAPrompt(t *testing.T) {
	t.Parallel()
	list := voice.Installed(t.Context(), inference.VoiceConfig{})
	require.Contains(t, list, voice.Voice{ID: "flite:rms", Language: "en"})
	require.Contains(t, list, voice.Voice{ID: "espeak-ng:nl", Language: "nl"})
	synth, err := voice.New(inference.VoiceConfig{Program: "flite", Name: "slt", Language: "en"}, zerolog.Nop())
	require.NoError(t, err)
	s, err := wrap(&engine{chunks: letters("Red attacks.", 4)}, synth).NewSession()
	require.NoError(t, err)
	say := func(id string) (samples []int16) {
		for c, err := range s.Generate(t.Context(), inference.Prompt{Speech: true, Language: "en", Voice: id}) {
			require.NoError(t, err)
			samples = append(samples, c.Audio...)
		}
		return samples
	}
	own := say("")
	require.NotEmpty(t, own)
	require.Equal(t, own, say("flite:slt"))
	require.Equal(t, own, say("festival:x"))
	require.Equal(t, own, say("flite:../../bad"))
	require.Equal(t, own, say("auto"), "flite's default")
	require.NotEqual(t, own, say("flite:rms"))
	require.NotEqual(t, own, say("espeak-ng:en-us"))
}

// TestPrograms: each program of the table has code, and is chosen by its name.
func TestPrograms(t *testing.T) {
	var names []string
	for _, p := range inference.VoicePrograms() {
		names = append(names, p.Name)
		require.True(t, inference.IsVoice(p.Name+":anna"))
		_, err := voice.New(inference.VoiceConfig{Program: p.Name, URL: "http://127.0.0.1:1/v1", Language: "en"}, zerolog.Nop())
		require.NoError(t, err)
	}
	require.Equal(t, names, voice.Coded())
	_, err := voice.New(inference.VoiceConfig{Program: "festival"}, zerolog.Nop())
	require.ErrorContains(t, err, `inference.voice.program: must be "auto", "model", "flite", `)
	require.ErrorContains(t, err, ` or "remote", is "festival"`)
}
