package voice_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/inference"
	"touchline/inference/voice"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func synth(tb testing.TB, program string) *voice.Synthesizer {
	tb.Helper()
	s, err := voice.New(inference.VoiceConfig{Program: program, Language: "en"}, zerolog.Nop())
	require.NoError(tb, err)
	return s
}

// timed is a word with its start in ms.
type timed struct {
	word  string
	start int
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Word times must be within 250 ms of the sound; these are within 100.
func requireTimes(t *testing.T, want []timed, got []inference.WordTime) {
	t.Helper()
	require.Len(t, got, len(want))
	worst := time.Duration(0)
	for i, w := range want {
		require.Equal(t, w.word, got[i].Text)
		off := got[i].Start - ms(w.start)
		worst = max(worst, off.Abs())
		require.LessOrEqual(t, off.Abs(), 100*time.Millisecond, "%s: %v, expected %v", w.word, got[i].Start, ms(w.start))
		require.LessOrEqual(t, got[i].Start, got[i].End)
		if i > 0 {
			require.GreaterOrEqual(t, got[i].Start, got[i-1].End)
		}
	}
	t.Logf("largest error %v", worst)
}

// The expected times are the word events of espeak-ng 1.51's library, which its
// program does not print.
func TestEspeakWordTimes(t *testing.T) {
	tests := []struct {
		lang string
		want []timed
	}{
		{"en", []timed{
			{"Hello", 0},
			{"there,", 307},
			{"a", 814},
			{"goal", 889},
			{"was", 1171},
			{"scored", 1400},
			{"2.5", 1754},
			{"minutes", 2570},
			{"ago!", 2928},
		}},
		{"en", []timed{
			{"The", 0},
			{"end", 119},
			{"of", 334},
			{"the", 428},
			{"game", 563},
			{"was", 845},
			{"out", 1033},
			{"of", 1200},
			{"the", 1343},
			{"box.", 1463},
		}},
		{"de", []timed{
			{"Die", 0},
			{"rote", 97},
			{"Mannschaft", 405},
			{"kommt", 870},
			{"über", 1304},
			{"links", 1513},
			{"und", 1891},
			{"sucht", 2094},
			{"die", 2452},
			{"Lücke", 2583},
			{"am", 2872},
			{"Strafraum,", 2987},
			{"aber", 3694},
			{"ohne", 3953},
			{"Erfolg.", 4172},
		}},
		{"de-AT", []timed{
			{"Es", 0},
			{"steht", 124},
			{"2,5", 466},
			{"zu", 1483},
			{"3", 1699},
			{"nach", 2029},
			{"90", 2261},
			{"Minuten.", 2714},
		}},
		{"fr", []timed{
			{"L'équipe", 0},
			{"rouge", 396},
			{"avance", 594},
			{"sur", 901},
			{"la", 1122},
			{"gauche,", 1230},
			{"puis", 1692},
			{"elle", 1911},
			{"tire.", 2054},
		}},
		{"es", []timed{
			{"El", 0},
			{"equipo", 95},
			{"rojo", 480},
			{"avanza", 801},
			{"por", 1198},
			{"la", 1377},
			{"izquierda", 1473},
			{"y", 2051},
			{"dispara.", 2143},
		}},
		{"pt-BR", []timed{
			{"O", 0},
			{"time", 72},
			{"vermelho", 349},
			{"ataca", 880},
			{"pela", 1305},
			{"esquerda", 1561},
			{"e", 2044},
			{"chuta", 2133},
			{"para", 2448},
			{"fora.", 2714},
		}},
		{"it", []timed{
			{"La", 0},
			{"squadra", 108},
			{"rossa", 569},
			{"attacca", 915},
			{"sulla", 1423},
			{"sinistra,", 1732},
			{"ma", 2524},
			{"il", 2655},
			{"tiro", 2787},
			{"finisce", 3054},
			{"fuori.", 3468},
		}},
	}
	for _, tt := range tests {
		words := make([]string, len(tt.want))
		for i, w := range tt.want {
			words[i] = w.word
		}
		text := strings.Join(words, " ")
		t.Run(tt.lang+" "+text, func(t *testing.T) {
			sp, err := synth(t, "espeak-ng").Sentence(t.Context(), text, tt.lang)
			require.NoError(t, err)
			require.Equal(t, 22050, sp.Rate)
			requireTimes(t, tt.want, sp.Words)
		})
	}
}

// The expected times are from flite 2.2's list of phones.
func TestFliteWordTimes(t *testing.T) {
	tests := []struct {
		text string
		want []timed
	}{
		{"Hello **there**, a goal was scored 2.5 minutes ago! 🎉", []timed{
			{"Hello", 164},
			{"**there**,", 523},
			{"a", 921},
			{"goal", 964},
			{"was", 1208},
			{"scored", 1312},
			{"2.5", 1706},
			{"minutes", 2641},
			{"ago!", 3048},
			{"🎉", 3415},
		}},
		{"Dr. Smith runs. Hello there! What? Yes.", []timed{
			{"Dr.", 193},
			{"Smith", 599},
			{"runs.", 987},
			{"Hello", 1543},
			{"there!", 1904},
			{"What?", 2305},
			{"Yes.", 2557},
		}},
		{"A short sentence here.", []timed{{"A", 220}, {"short", 264}, {"sentence", 594}, {"here.", 1152}}},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			sp, err := synth(t, "auto").Sentence(t.Context(), tt.text, "en-GB")
			require.NoError(t, err)
			require.Equal(t, 16000, sp.Rate)
			requireTimes(t, tt.want, sp.Words)
		})
	}
}

// With a pause between words, each word begins where sound follows silence.
func TestWordTimesAgreeWithTheSound(t *testing.T) {
	for _, program := range []string{"flite", "espeak-ng"} {
		t.Run(program, func(t *testing.T) {
			sp, err := synth(t, program).Sentence(t.Context(), "Red, blue, the goal, nobody, *again*, goodbye.", "en")
			require.NoError(t, err)
			var onsets []time.Duration
			quiet := time.Hour
			step := sp.Rate / 200
			for at := 0; at+step <= len(sp.Audio); at += step {
				loud := false
				for _, v := range sp.Audio[at : at+step] {
					loud = loud || v > 300 || v < -300
				}
				if loud && quiet >= 90*time.Millisecond {
					onsets = append(onsets, time.Duration(at)*time.Second/time.Duration(sp.Rate))
				}
				quiet += 5 * time.Millisecond
				if loud {
					quiet = 0
				}
			}
			require.Len(t, onsets, 6, "%v", onsets)
			require.Len(t, sp.Words, 7)
			for i, w := range []int{0, 1, 2, 4, 5, 6} {
				require.InDelta(t, onsets[i].Seconds(), sp.Words[w].Start.Seconds(), 0.1, "%s", sp.Words[w].Text)
			}
		})
	}
}

func TestMissingProgramSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := synth(t, "auto")
	_, err := s.Sentence(t.Context(), "Hello.", "en")
	require.ErrorContains(t, err, "apt-get install flite")
	require.ErrorContains(t, s.Check(), "apt-get install flite")
	err = s.Check("en", "de", "fr", "en-US")
	require.ErrorContains(t, err, "apt-get install flite")
	require.Equal(t, 1, strings.Count(err.Error(), "apt-get install espeak-ng"))
}

func TestCheckIsContentWithBothPrograms(t *testing.T) {
	require.NoError(t, synth(t, "auto").Check("en", "de"))
}

// program puts a script of that name first on the PATH.
func program(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestHangingProgramIsKilled(t *testing.T) {
	program(t, "flite", "exec sleep 300")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := synth(t, "flite").Sentence(ctx, "Hello.", "en")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), 4*time.Minute, "not after 300 s")
}

func TestFailingProgramSaysWhy(t *testing.T) {
	program(t, "flite", "echo no voice today >&2; exit 3")
	_, err := synth(t, "flite").Sentence(t.Context(), "Hello.", "en")
	require.ErrorContains(t, err, "no voice today")
	require.ErrorContains(t, err, "exit status 3")

	program(t, "flite", "echo no sound at all")
	_, err = synth(t, "flite").Sentence(t.Context(), "Hello.", "en")
	require.ErrorContains(t, err, "read flite's sound")

	program(t, "flite", "cat /dev/zero >&3")
	_, err = synth(t, "flite").Sentence(t.Context(), "Hello.", "en")
	require.Error(t, err, "endless output is cut off")
}

// The program runs without this process's secrets and with limited resources.
func TestProgramsAreConfined(t *testing.T) {
	t.Setenv("LIVEKIT_API_SECRET", "hunter2")
	program(t, "flite", `{ env; echo cpu $(ulimit -t) core $(ulimit -c) files $(ulimit -n) memory $(ulimit -v); } >&2; exit 3`)
	_, err := synth(t, "flite").Sentence(t.Context(), "Hello.", "en")
	require.ErrorContains(t, err, "PATH=")
	require.NotContains(t, err.Error(), "hunter2")
	require.ErrorContains(t, err, "cpu 20 core 0 files 64 memory 1048576")
}

// Without phones the times are estimated.
func TestTimesAreEstimatedWithoutPhones(t *testing.T) {
	for _, name := range []string{"flite", "espeak-ng"} {
		path, err := findProgram(name)
		require.NoError(t, err)
		hide := `for a in "$@"; do case "$a" in -ps|-x) exit 0;; esac; done; exec ` + path + ` "$@"`
		program(t, name, hide)
		sp, err := synth(t, name).Sentence(t.Context(), "The red team attacks, but the keeper holds it.", "en")
		require.NoError(t, err)
		require.Len(t, sp.Words, 9)
		truth := synthTruth(t, name, path)
		for i, w := range sp.Words {
			require.InDelta(t, truth[i].Start.Seconds(), w.Start.Seconds(), 0.25, "%s", w.Text)
		}
	}
}

func findProgram(name string) (string, error) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", os.ErrNotExist
}

func synthTruth(t *testing.T, name, path string) []inference.WordTime {
	t.Helper()
	program(t, name, "exec "+path+` "$@"`)
	sp, err := synth(t, name).Sentence(t.Context(), "The red team attacks, but the keeper holds it.", "en")
	require.NoError(t, err)
	return sp.Words
}

func TestTextIsNeverAnOption(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, p := range []string{"flite", "espeak-ng"} {
		for _, text := range []string{"-o stolen.wav", "--help", "-w stolen.wav hello", "-f /etc/hostname", "$(touch stolen.wav) `touch x`"} {
			sp, err := synth(t, p).Sentence(t.Context(), text, "en")
			require.NoError(t, err, "%s %q", p, text)
			require.Greater(t, len(sp.Audio), sp.Rate/4, "%s %q", p, text)
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestBadInput(t *testing.T) {
	for _, cfg := range []inference.VoiceConfig{
		{Program: "say"},
		{Name: "../../etc/voice"},
		{Name: "-o"},
		{Language: "en -w x"},
	} {
		_, err := voice.New(cfg, zerolog.Nop())
		require.ErrorContains(t, err, "inference.voice.")
	}
	s := synth(t, "auto")
	for _, text := range []string{"", "   ", "...", "…", "🎉🎉", "***", "\x00\x01", "\xff\xfe"} {
		_, err := s.Sentence(t.Context(), text, "en")
		require.ErrorIs(t, err, voice.ErrNothingToSay, "%q", text)
	}
	_, err := s.Sentence(t.Context(), strings.Repeat("word ", 1000), "en")
	require.ErrorContains(t, err, "is longer than 2000")
	_, err = s.Sentence(t.Context(), "Saluton", "-q/../x")
	require.ErrorContains(t, err, "language")
	_, err = s.Sentence(t.Context(), "Qapla", "qqq")
	require.ErrorContains(t, err, "does not exist")
	// Broken characters and control codes are skipped.
	sp, err := s.Sentence(t.Context(), "Go\xffal \x00\x1b[31mnow", "en")
	require.NoError(t, err)
	require.Len(t, sp.Words, 2)
}

func TestScriptIsCleaned(t *testing.T) {
	tests := map[string]string{
		"**Goal!** for _red_": "Goal! for red",
		"# Title":             "Title",
		"- a point":           "a point",
		"see [the table](https://a.example/x?y=1).": "see the table.",
		"at https://a.example/x?y=1, now":           "at link, now",
		"(www.example.com)":                         "link",
		"well-known":                                "well known",
		"it was -3 °C":                              "it was minus 3 °C",
		"5 % up & $3":                               "5 % up & $3",
		"wow 🎉👍🏽 yes":                               "wow yes",
		"don’t “quote”":                             "don't quote",
		"a — b":                                     "a b",
		"red/blue":                                  "red blue",
		"`code` <b>x</b>":                           "code bx b",
		"Müller läuft… weiter":                      "Müller läuft. weiter",
		"score 2.5 to 1":                            "score 2.5 to 1",
		"日本語です。":                                    "日本語です。",
	}
	for in, want := range tests {
		require.Equal(t, want, voice.Script(in), "%q", in)
	}
}

// BenchmarkSpeak measures the time from a sentence to its sound and word times.
func BenchmarkSpeak(b *testing.B) {
	for _, bb := range []struct{ name, program, lang, text string }{
		{"flite/short", "flite", "en", "The red team scores a goal."},
		{"flite/long", "flite", "en", "The red team moves down the left side, looking for an opening, and then the keeper comes out."},
		{"espeak-ng/short", "espeak-ng", "de", "Die rote Mannschaft trifft."},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := synth(b, bb.program)
			var sound time.Duration
			for b.Loop() {
				sp, err := s.Sentence(b.Context(), bb.text, bb.lang)
				require.NoError(b, err)
				sound = time.Duration(len(sp.Audio)) * time.Second / time.Duration(sp.Rate)
			}
			b.ReportMetric(sound.Seconds()*1000, "ms-of-sound")
		})
	}
}

// TestBehind: programs of speech that is not live leave the CPU to others.
func TestBehind(t *testing.T) {
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // 20 less its niceness
	require.NoError(t, err)
	program(t, "flite", fmt.Sprintf(`until [ "$(nice)" = %d ]; do :; done; echo "behind the others" >&2; exit 1`, min(19, 20-own+10)))
	_, err = synth(t, "flite").Sentence(inference.Behind(t.Context()), "Hello.", "en")
	require.ErrorContains(t, err, "behind the others")
}
