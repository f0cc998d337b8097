package inference_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

func TestTranscriptsAreJoined(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{" the ball ", "", "is out. "}, "the ball is out."},
		{[]string{"球が", "出た。", "Goal"}, "球が出た。Goal"},
		{[]string{"안녕", "하세요"}, "안녕 하세요"},
	} {
		require.Equal(t, c.want, inference.JoinTranscripts(c.parts...))
	}
}

func TestLanguages(t *testing.T) {
	for _, c := range []struct{ given, tag, name string }{
		{"en", "en", "english"},
		{"English", "en", "english"},
		{" pt-BR ", "pt-BR", "portuguese"},
		{"yue", "yue", "cantonese"},
		{"FILIPINO", "fil", "filipino"},
		{"Flemish", "nl", "dutch"},
		{"haitian creole", "ht", "haitian"},
		{"zh", "zh", "chinese"},
		{"xx", "", ""},
		{"", "", ""},
		{"Klingon", "", ""},
		{"en\x00", "", ""},
	} {
		tag := inference.LanguageTag(c.given)
		require.Equal(t, c.tag, tag, c.given)
		require.Equal(t, c.name, inference.LanguageName(tag), c.given)
	}
}

func TestRecordingsAreSplitWhereItIsQuiet(t *testing.T) {
	sound := make([]float32, 40*16000)
	for i := range sound {
		sound[i] = 0.5
	}
	require.Len(t, inference.SplitSound(sound, 40*16000), 1)
	for i := range 2000 {
		sound[8*16000+i], sound[24*16000+i] = 0.1, 0.1 // each is nearer than 5 s to where a part would end
	}
	sound[8*16000+700], sound[24*16000+100] = 0, -0.01
	parts := inference.SplitSound(sound, 12*16000)
	require.Len(t, parts, 4)
	require.Len(t, parts[0], 8*16000+700)
	require.Equal(t, 24*16000+100, len(parts[0])+len(parts[1]))
	require.Len(t, inference.SplitSound(make([]float32, 100), 3), 34, "it ends, also in silence")
	require.Equal(t, 0, inference.Quietest(nil))
}
