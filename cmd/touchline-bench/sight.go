package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"touchline/agent/history"
	"touchline/agent/look"
	"touchline/cmd/internal/bench"
	"touchline/internal/e2e/cutout"
	"touchline/internal/quantile"
)

// sightRooms is the number of rooms of the measurement with several.
const sightRooms = 4

// sight measures how right the engine sight is, what it costs above scene, and the time from an event in the delayed picture to the first
// word.
func sight(r *run) {
	r.Part(func() { sightAccuracy(r) })
	const withoutText = "TOUCHLINE_INFERENCE_SIGHT_TEXT=false"
	var scene, scenes, plain, text, more usage
	for _, c := range []struct {
		result *usage
		rooms  int
		env    []string
	}{
		{&scene, 1, []string{engineSetting + "scene"}},
		{&scenes, sightRooms, []string{engineSetting + "scene"}},
		{&plain, 1, []string{engineSetting + "sight", withoutText}},
		{&text, 1, []string{engineSetting + "sight"}},
		{&more, sightRooms, []string{engineSetting + "sight"}},
	} {
		r.Part(func() { *c.result = costOf(r, c.rooms, false, c.env...) })
	}
	r.AtMost("sight with parts, without text, above scene, CPU of a room", plain.share()-scene.share(), 15, "% of a core")
	r.AtMost("sight with parts and text above scene, CPU of a room", text.share()-scene.share(), 18, "% of a core")
	r.AtMost("sight above scene, memory of the first room", mega(text.RSS-scene.RSS), 180, "MB")
	r.AtMost("memory of each further room", (mega(more.RSS-text.RSS)-mega(scenes.RSS-scene.RSS))/(sightRooms-1), 8, "MB")
	r.Note("four rooms", "%.1f %% of a core, %.0f MB", more.share(), mega(more.RSS))

	var delays, words []time.Duration
	r.Part(func() { delays, words = sightDelays(r) })
	if len(words) == 0 {
		r.Check(errors.New("no comment on an arrival or a departure"))
	}
	r.Note("comments with facts", "%d", len(words))
	r.AtMost("event in the delayed picture to the first word, median", bench.MS(quantile.Of(words, 0.5)), 1000, "ms")
	r.AtMost("event in the delayed picture to the first word, p95", bench.MS(quantile.Of(words, 0.95)), 2000, "ms")
	r.Note("delay of the picture, median", "%.1f s", quantile.Of(delays, 0.5).Seconds())
	r.Note("load of the machine", "%s", loadAverage())
}

// accuracy has the tests that print how right sight is, and what they measure.
func accuracy() map[string]string {
	return map[string]string{
		"TestPeopleOnClip": "people of 12 stills of a clip", "TestPhotos": "72 photos", "TestDrawnBoards": "drawn boards and lines",
		"TestBoardOnClip": "a board drawn into a clip", "TestArrivalsAndDepartures": "arrivals and departures of a clip",
		"TestRulesAgainstTheList": "rules on a clip", "TestZonesOnTheClip": "zones and lines on a clip", "TestSentencesOfTheDocs": "sentences",
		"TestNothingComes": "false arrivals in 10 minutes",
	}
}

// sightAccuracy runs these tests. It needs Go and the folder of the module.
func sightAccuracy(r *run) {
	cmd := exec.CommandContext(r.Context(), "go", "test", "-tags=nolibopusfile,builtinassets", "-count=1", "-json",
		"-run=^("+strings.Join(slices.Sorted(maps.Keys(accuracy())), "|")+")$", "./inference/sight/...")
	out, err := cmd.Output()
	if len(out) == 0 {
		r.Check(fmt.Errorf("run the tests of inference/sight in the folder of the module: %w", err))
	}
	said := ""
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output string }
		what := ""
		if json.Unmarshal(line, &e) == nil {
			test, _, _ := strings.Cut(e.Test, "/")
			what = accuracy()[test]
		}
		if _, text, ok := strings.Cut(e.Output, "_test.go:"); ok {
			_, said, _ = strings.Cut(strings.TrimSpace(text), ": ")
		}
		figures, printed := strings.CutPrefix(said, "figures: ")
		switch {
		case what == "":
		case e.Action == "output" && printed:
			r.Note(what, "%s", figures)
			said = ""
		case e.Action == "skip":
			r.Note(what, "left out: %s", said)
		case e.Action == "pass" && e.Test == "TestNothingComes":
			r.Note(what, "0")
		case e.Action == "fail":
			r.Fail(fmt.Errorf("%s: the test %s fails", what, e.Test))
		}
	}
}

// sightTime is how long the clip with people is watched.
const sightTime = 150 * time.Second

// sightDelays shows a clip in which a photo of a person comes and goes. It returns the delay of the picture and the time from the event
// to the first word, for each comment that the engine anchored.
func sightDelays(r *run) (delays, words []time.Duration) {
	clip, store, walk := filepath.Join(r.folder(), "clip.mp4"), r.folder(), sightWalk()
	r.Check(cutout.Write(r.Context(), clip, walk.End()+4*time.Second, walk))
	cmd := r.program("touchline", "--log-level=error", "run", "--listen", "127.0.0.1:0", "--source", clip)
	cmd.Env = append(cmd.Env, engineSetting+"sight", "TOUCHLINE_AGENT_HISTORY_STORE=file", "TOUCHLINE_AGENT_HISTORY_PATH="+store)
	p := startProcess(r, cmd)
	r.Wait(sightTime)
	p.stop()
	for _, e := range alignedComments(r, store) {
		if c := e.Record; len(c.Facts) > 0 {
			delays, words = append(delays, seconds(c.Delay)), append(words, seconds(c.AlignmentError))
		}
	}
	return delays, words
}

// sightWalk is a person who comes from the left and goes to the right.
func sightWalk() cutout.Walk {
	return cutout.Walk{
		Photo: "inference/sight/testdata/astronaut.png",
		Enter: 4 * time.Second, Walk: 2500 * time.Millisecond, Stay: 4 * time.Second,
	}
}

// alignedComments reads the comments on a delayed picture from a history.
func alignedComments(r *run, store string) (comments []history.Entry) {
	reader, err := history.OpenReader(r.Context(), store)
	r.Check(err)
	r.Cleanup(func() { r.Fail(reader.Close()) })
	said := []string{look.OutcomeSpoken, look.OutcomeShown}
	for e, err := range reader.Entries(r.Context(), history.Query{Everything: true}) {
		r.Check(err)
		if e.Record.Aligned && slices.Contains(said, e.Record.Outcome) {
			comments = append(comments, e)
		}
	}
	return comments
}
