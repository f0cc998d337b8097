package inference

import (
	"strings"

	"touchline/internal/check"
)

// Voices other than speech programs.
const (
	VoiceAuto  = "auto"
	VoiceModel = "model"
)

// VoiceServer is the program name of a speech server.
const VoiceServer = "remote"

// VoiceProgram describes a speech program; package voice has the implementations.
type VoiceProgram struct {
	// Name is a value of inference.voice.program, and the part of a voice's ID before the colon, as in "flite:slt".
	Name string
	// Languages are primary tags for which VoiceAuto chooses the program; AnyLanguage means the rest, and none means never.
	Languages []string
}

// AnyLanguage means every language for which no earlier program is chosen.
const AnyLanguage = "*"

// VoicePrograms is the table of the speech programs, in the order of lists.
func VoicePrograms() []VoiceProgram {
	return []VoiceProgram{
		{Name: "flite", Languages: []string{"en"}},
		{Name: "espeak-ng", Languages: []string{AnyLanguage}},
		{Name: VoiceServer},
	}
}

// VoiceChoices are the values of inference.voice.program.
func VoiceChoices() []string {
	out := []string{VoiceAuto, VoiceModel}
	for _, p := range VoicePrograms() {
		out = append(out, p.Name)
	}
	return out
}

// VoiceRule describes the voices that IsVoice accepts.
const VoiceRule = `"auto", "model", "remote", or a program and a voice such as "flite:slt", "espeak-ng:nl" or "model:anna"`

// IsVoice reports whether an ID has the form of Prompt.Voice. A program without a voice is valid for a server only.
func IsVoice(id string) bool {
	program, name, _ := strings.Cut(id, ":")
	switch program {
	case VoiceAuto:
		return id == program
	case VoiceModel, VoiceServer:
		return id == program || name != "" && check.Name(name) && len(name) <= 64
	}
	for _, p := range VoicePrograms() {
		if p.Name == program {
			return name != "" && len(name) <= 64
		}
	}
	return false
}

// List joins names as in a sentence: "a, b or c".
func List(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
