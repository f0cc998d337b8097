// Package settings owns the settings that change while a commentator runs: one table of them, and the values in force in one
// room.
//
// The API, the calls of the room, the state file, presets, undo, the documentation and the page's controls come from the
// table. The package knows no engine and no voice: what they can do is checked by its user. It has no goroutines, no locks and no clock.
package settings

import (
	"fmt"
)

// Settings are the settings that can change while a bot runs. A nil pointer
// leaves its setting alone.
type Settings struct {
	Speech           *bool    `json:"speech,omitempty"`
	CaptureFPS       *float64 `json:"capture_fps,omitempty"`
	Frames           *int     `json:"frames_per_look,omitempty"`
	Stride           *int     `json:"frame_stride,omitempty"`
	ChangeThreshold  *float64 `json:"change_threshold,omitempty"`
	LookWhen         *string  `json:"look_when,omitempty"`     // as Config.LookWhen
	LookMaxWait      *float64 `json:"look_max_wait,omitempty"` // s
	MinInterval      *float64 `json:"min_interval,omitempty"`  // s
	PauseAfter       *float64 `json:"pause_after,omitempty"`   // s
	FixedDelay       *float64 `json:"fixed_delay,omitempty"`   // s; 0 = automatic
	MaxTokens        *int     `json:"max_tokens,omitempty"`
	SpeechMaxTokens  *int     `json:"speech_max_tokens,omitempty"`
	CutOnInstruction *bool    `json:"cut_on_instruction,omitempty"`
	Repeats          *string  `json:"repeats,omitempty"` // as Config.Repeats
	Quantile         *float64 `json:"quantile,omitempty"`
	Margin           *float64 `json:"margin,omitempty"`    // s
	LongSide         *int     `json:"long_side,omitempty"` // pixels
	MaxSlices        *int     `json:"max_slices,omitempty"`
	// Sampling; absent from the settings in force while only the engine knows the value.
	Temperature       *float64 `json:"temperature,omitempty"`
	TopK              *int     `json:"top_k,omitempty"`
	TopP              *float64 `json:"top_p,omitempty"`
	RepetitionPenalty *float64 `json:"repetition_penalty,omitempty"`
	// Preset sets several of these at once; "" is none. Auto chooses among the presets as the engine keeps up.
	Preset   *string `json:"preset,omitempty"`
	Language *string `json:"language,omitempty"`
	// Verbosity is as Config.Verbosity.
	Verbosity *int `json:"talkativeness,omitempty"`
	// VoiceGain is the level of the voice, dB; 0 as the engine makes it.
	VoiceGain *float64 `json:"voice_gain,omitempty"`
	// Voice is "auto", "model" (the engine's own), "remote" (the speech server's), or a voice of a
	// program, such as "flite:slt", "espeak-ng:nl" or "remote:af_heart".
	Voice *string `json:"voice,omitempty"`
	// Hearing is Hearing.Mode; the other fields of it follow.
	Hearing    *string   `json:"hearing,omitempty"`
	WakeWords  *[]string `json:"wake_words,omitempty"`
	Remarks    *bool     `json:"remarks,omitempty"`
	HearCamera *bool     `json:"hear_camera,omitempty"`
	// ConfirmOrders is Hearing.Confirm.
	ConfirmOrders *bool    `json:"confirm_orders,omitempty"`
	BargeIn       *string  `json:"manners,omitempty"`
	MaxWait       *float64 `json:"max_wait,omitempty"` // s
	// MaskDelayed masks the delayed picture too, which costs its transcoding.
	MaskDelayed *bool `json:"mask_delayed,omitempty"`
}

// RangeError is the error for a setting or an instruction that is out of bounds.
type RangeError struct {
	Name, Want string
	Got        any
}

// Error returns the setting, the values it accepts and the value it got.
func (e *RangeError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %v", e.Name, e.Want, e.Got)
}
