package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"touchline/agent/prompt"
	"touchline/internal/check"
	"touchline/media"
)

// maxMetadata bounds the metadata of a dispatch in bytes. The server itself accepts eight times as much.
const maxMetadata = 64 << 10

// Metadata is the metadata of a dispatch: a JSON object with the settings of its
// room, all optional. The worker's own settings are the defaults.
type Metadata struct {
	// Profile names a prompt profile.
	Profile string
	// Instruction is the instruction at the start.
	Instruction string
	// Track chooses the video to watch.
	Track media.WatchConfig
	// Speech turns the voice on or off; nil leaves it.
	Speech *bool
	// Language, BCP 47.
	Language string
	// Engine is scene, nano, remote or minicpmo, where this worker has it.
	Engine string
}

// ParseMetadata reads the metadata of a dispatch. Empty text is empty metadata.
// The error for an unknown key lists the known ones.
func ParseMetadata(text string) (Metadata, error) {
	var m Metadata
	if strings.TrimSpace(text) == "" {
		return m, nil
	}
	if len(text) > maxMetadata {
		return Metadata{}, fmt.Errorf("dispatch metadata: expected at most %d bytes, got %d", maxMetadata, len(text))
	}
	if !utf8.ValidString(text) {
		return Metadata{}, errors.New("dispatch metadata: expected UTF-8 text")
	}
	err := object([]byte(text), map[string]any{
		"profile":     &m.Profile,
		"instruction": &m.Instruction,
		"track":       (*track)(&m.Track),
		"speech":      &m.Speech,
		"language":    &m.Language,
		"engine":      &m.Engine,
	})
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return Metadata{}, fmt.Errorf("dispatch metadata: %w", err)
	}
	return m, nil
}

// text returns the metadata in the form that ParseMetadata reads.
func (m Metadata) text() (string, error) {
	keys := map[string]any{}
	for key, v := range map[string]string{
		"profile": m.Profile, "instruction": m.Instruction, "language": m.Language, "engine": m.Engine,
	} {
		if v != "" {
			keys[key] = v
		}
	}
	if m.Speech != nil {
		keys["speech"] = *m.Speech
	}
	if m.Track != (media.WatchConfig{}) {
		keys["track"] = map[string]string{"identity": m.Track.Identity, "source": m.Track.Source}
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return "", fmt.Errorf("write the dispatch metadata: %w", err)
	}
	_, err = ParseMetadata(string(text))
	return string(text), err
}

// track is the choice of a track in JSON.
type track media.WatchConfig

// UnmarshalJSON implements json.Unmarshaler.
func (t *track) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	return object(text, map[string]any{"identity": &t.Identity, "source": &t.Source})
}

// object reads the values of a JSON object into places by key. Any other key is an error.
func object(text []byte, places map[string]any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var found map[string]json.RawMessage
	if err := dec.Decode(&found); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return check.JSON(err)
		}
		return fmt.Errorf("expected a JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("expected one JSON object, got more behind it")
	}
	if found == nil {
		return errors.New("expected a JSON object, got null")
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		place, ok := places[key]
		if !ok {
			return fmt.Errorf("unknown key %q; the known ones are %s", key, strings.Join(slices.Sorted(maps.Keys(places)), ", "))
		}
		if err := json.Unmarshal(found[key], place); err != nil {
			return fmt.Errorf("%s: %w", key, check.JSON(err))
		}
	}
	return nil
}

// check returns the first error that does not depend on this worker's settings.
func (m Metadata) check() error {
	if n := utf8.RuneCountInString(m.Instruction); n > prompt.MaxInstruction {
		return fmt.Errorf("instruction: expected at most %d characters, got %d", prompt.MaxInstruction, n)
	}
	switch m.Track.Source {
	case "", "camera", "screen_share":
	default:
		return fmt.Errorf(`track.source: expected "camera" or "screen_share", got %q`, m.Track.Source)
	}
	if m.Language != "" && !isLanguage(m.Language) {
		return fmt.Errorf("language: expected a tag such as en or pt-BR, got %q", m.Language)
	}
	return nil
}

// isLanguage reports whether s has the shape of a BCP 47 tag (RFC 5646, section
// 2.1): parts of at most eight letters and digits, the first of letters alone.
func isLanguage(s string) bool {
	if len(s) > 35 {
		return false
	}
	for i, part := range strings.Split(s, "-") {
		if part == "" || len(part) > 8 || i == 0 && len(part) < 2 {
			return false
		}
		for _, r := range part {
			letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
			if !letter && (i == 0 || r < '0' || r > '9') {
				return false
			}
		}
	}
	return true
}
