package fakes

import (
	"fmt"
	"io"
	"net/http"
)

// Heard is what the transcription server of Speech hears.
const Heard = "Een doelpunt!"

// Speech is a transcription server for /FAULT/v1: each path behaves as reports of a server describe. An unknown fault is a 404.
func Speech() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{fault}/v1/audio/transcriptions", func(w http.ResponseWriter, r *http.Request) {
		verbose := r.FormValue("response_format") == "verbose_json"
		if answer := speechFaults()[r.PathValue("fault")]; answer != nil {
			answer(w, verbose)
			return
		}
		http.NotFound(w, r)
	})
	return mux
}

// speechFaults returns the faults by their paths.
func speechFaults() map[string]func(w http.ResponseWriter, verbose bool) {
	plain := func(w http.ResponseWriter) { fmt.Fprintf(w, `{"text":%q}`, Heard) }
	refuses := func(status int, text string) func(http.ResponseWriter, bool) {
		return func(w http.ResponseWriter, verbose bool) {
			if verbose {
				refuse(w, status, text)
				return
			}
			plain(w)
		}
	}
	raw := func(text string) func(http.ResponseWriter, bool) {
		return func(w http.ResponseWriter, _ bool) { _, _ = io.WriteString(w, text) }
	}
	return map[string]func(w http.ResponseWriter, verbose bool){
		"good":        func(w http.ResponseWriter, _ bool) { plain(w) },
		"vllm":        refuses(http.StatusBadRequest, "Currently do not support verbose_json for qwen3-asr"),
		"vague":       refuses(http.StatusBadRequest, "bad request"),
		"verbose-500": refuses(http.StatusInternalServerError, "KeyError: 'segments'"),
		"nan":         raw(`{"text":"` + Heard + `","segments":[{"start":NaN,"end":NaN,"text":"` + Heard + `"}]}`),
		"strings":     raw(`{"text":"` + Heard + `","segments":[{"start":"0.0","end":"1.5","text":"` + Heard + `"}]}`),
		"bom":         raw("\uFEFF" + `{"text":"` + Heard + `"}`),
		"sense-voice": raw(`{"text":"<|nl|><|NEUTRAL|><|Speech|><|woitn|>` + Heard + `"}`),
		"other-types": raw(`{"text":"` + Heard + `","language":["nl"],"segments":{},"words":["Een"]}`),
		"only-segments": raw(`{"segments":[{"start":0,"end":1,"text":" ` + Heard + `","words":[{"word":" Een","start":0,"end":0.4},` +
			`{"word":" doelpunt","start":0.4,"end":0.9},{"word":"!","start":0.9,"end":1}]}]}`),
		"qwen-marks":     raw(`{"text":"language Dutch<asr_text>` + Heard + `"}`),
		"hostile-cues":   raw(`{"text":"x","segments":[{"start":1,"end":0,"text":"` + Heard + `"},{"start":-3,"end":-2,"text":"<b>b</b>"}]}`),
		"no-words":       raw(`{"text":"` + Heard + `","segments":[{"start":0,"end":1,"text":"` + Heard + `"}],"words":[]}`),
		"no-segments":    raw(`{"text":"` + Heard + `","words":[{"word":"Een","start":0,"end":0.4},{"word":"doelpunt","start":0.4,"end":0.9}]}`),
		"unfinished":     raw(`{"text":"Een doel"}`),
		"created-status": func(w http.ResponseWriter, _ bool) { w.WriteHeader(http.StatusCreated); plain(w) },
	}
}
