package settings

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/internal/check"
)

// UsualVerbosity is the verbosity that leaves the other settings as they are.
const UsualVerbosity = 3

// Values of Config.Repeats.
const (
	RepeatsSilence = "silence" // a comment that repeats one of the last is not published
	RepeatsRetry   = "retry"   // the engine is asked once more; silence if that answer repeats one as well
	RepeatsAllow   = "allow"   // comments are not compared
)

// Values of Config.LookWhen.
const (
	LookByPixels = "pixels" // a look begins when the last one has ended and its comment allows
	LookByFacts  = "facts"  // it also waits for a new fact of the detector, at most Config.LookMaxWait
)

// lookWhenRule names the values of the setting.
const lookWhenRule = LookByPixels + " or " + LookByFacts

func lookWhenOptions() []string { return []string{LookByPixels, LookByFacts} }

// repeatsRule names the values of the setting.
const repeatsRule = RepeatsSilence + ", " + RepeatsRetry + " or " + RepeatsAllow

func repeatsOptions() []string { return []string{RepeatsSilence, RepeatsRetry, RepeatsAllow} }

// Config sets one bot in one room.
type Config struct {
	// Profile names the prompt profile: default, sports, security, nature, descriptive.
	Profile string `yaml:"profile" env:"PROFILE"`
	// Instruction is the first instruction; "" waits for one (idle) unless AutoStart is set.
	Instruction string `yaml:"instruction" env:"INSTRUCTION"`
	// AutoStart comments without an instruction from the start.
	AutoStart bool `yaml:"auto_start" env:"AUTO_START"`
	// Frames and Stride choose the window: Frames pictures, every Stride-th of the sampled ones.
	Frames int `yaml:"frames_per_look" env:"FRAMES_PER_LOOK"`
	Stride int `yaml:"frame_stride" env:"FRAME_STRIDE"`
	// ChangeThreshold skips a cycle when the scene changed less (0 to 255); 0 never skips.
	ChangeThreshold float64 `yaml:"change_threshold" env:"CHANGE_THRESHOLD"`
	// LookWhen is pixels or facts: a large model (engines minicpmo and remote) looks all the time, or when the detector of engine sight
	// finds something new, and at least every LookMaxWait.
	LookWhen    string        `yaml:"look_when" env:"LOOK_WHEN"`
	LookMaxWait time.Duration `yaml:"look_max_wait" env:"LOOK_MAX_WAIT"`
	// CutOnInstruction cuts the current speech on a new instruction.
	CutOnInstruction bool `yaml:"cut_on_instruction" env:"CUT_ON_INSTRUCTION"`
	// Repeats sets what becomes of a comment that says what one of the last 8 said, in the last two minutes: silence, retry (the engine is
	// asked once more), or allow.
	Repeats string `yaml:"repeats" env:"REPEATS"`
	// Verbosity, 1 to 5, sets pace, length and the change worth a comment together; 3 leaves them as they are.
	Verbosity int `yaml:"talkativeness" env:"TALKATIVENESS"`
	// InstructionHold is how long an instruction acts before another person's replaces it.
	InstructionHold time.Duration `yaml:"order_hold" env:"ORDER_HOLD"`
	// CycleTimeout bounds the time of one answer; loading a model does not count.
	CycleTimeout time.Duration `yaml:"cycle_timeout" env:"CYCLE_TIMEOUT"`
	// CopyToChat repeats each comment on lk.chat.
	CopyToChat bool `yaml:"copy_to_chat" env:"COPY_TO_CHAT"`
	// Hearing sets whose speech is recognized in the room.
	Hearing Hearing `yaml:"hearing" envPrefix:"HEARING_"`
}

// Reach returns how many sampled pictures a cycle reaches back.
func (c Config) Reach() int { return (c.Frames-1)*c.Stride + 1 }

// DefaultConfig returns the settings of the sniper preset.
func DefaultConfig() Config {
	return Config{
		Profile: "default", AutoStart: true, Frames: 4, Stride: 1, LookWhen: LookByPixels, LookMaxWait: 10 * time.Second,
		CutOnInstruction: true, Repeats: RepeatsSilence,
		Verbosity: UsualVerbosity, InstructionHold: 3 * time.Second, CycleTimeout: 2 * time.Minute,
		Hearing: DefaultHearing(),
	}
}

// Validate returns the errors of all settings, joined. Each message is
// "path: must be rule, is value" with the YAML path below "agent". The caller,
// which loads the profiles, checks that the profile exists.
func (c Config) Validate() error {
	var s check.Settings
	s.That(c.Profile != "", "profile", "the name of a profile", `""`)
	if n := utf8.RuneCountInString(c.Instruction); n > inference.MaxInstruction {
		s.That(false, "instruction", fmt.Sprintf("at most %d characters", inference.MaxInstruction), n)
	}
	s.That(check.Within(c.Frames, 1, 64), "frames_per_look", "between 1 and 64 pictures", c.Frames)
	s.That(check.Within(c.Stride, 1, 64), "frame_stride", "between 1 and 64", c.Stride)
	s.That(slices.Contains(lookWhenOptions(), c.LookWhen), "look_when", lookWhenRule, fmt.Sprintf("%q", c.LookWhen))
	s.That(check.Within(c.LookMaxWait, time.Second, time.Minute), "look_max_wait", "between 1s and 1m", c.LookMaxWait)
	s.That(slices.Contains(repeatsOptions(), c.Repeats), "repeats", repeatsRule, fmt.Sprintf("%q", c.Repeats))
	s.That(check.Within(c.Verbosity, 1, 5), "talkativeness", "between 1 and 5", c.Verbosity)
	s.That(check.Within(c.InstructionHold, 0, time.Minute), "order_hold", "between 0s and 1m", c.InstructionHold)
	s.That(check.Within(c.CycleTimeout, time.Second, time.Hour), "cycle_timeout", "between 1s and 1h", c.CycleTimeout)
	s.That(check.Within(c.ChangeThreshold, 0, 255), "change_threshold", "between 0 and 255", c.ChangeThreshold)
	s.Part("hearing", c.Hearing.Validate())
	return s.Err()
}
