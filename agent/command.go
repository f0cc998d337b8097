package agent

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"touchline/inference"
	"touchline/media/window"
)

// Command is an order to the agent itself, which acts at once and on every engine.
type Command string

// The commands.
const (
	CommandStop    Command = "stop"    // stop commenting
	CommandGoOn    Command = "go_on"   // comment again, under the same instruction
	CommandUndo    Command = "undo"    // take back the last order
	CommandShorter Command = "shorter" // one step less talkative
	CommandLonger  Command = "longer"  // one step more talkative
	CommandRepeat  Command = "repeat"  // say the last comment again
	CommandLouder  Command = "louder"
	CommandSofter  Command = "softer"
)

// Commands returns all commands.
func Commands() []Command {
	return []Command{
		CommandStop, CommandGoOn, CommandUndo, CommandShorter, CommandLonger, CommandRepeat, CommandLouder, CommandSofter,
	}
}

// ErrNothingTo is wrapped by the error of a command that has nothing to act on.
var ErrNothingTo = errors.New("nothing to do")

// Done is a command that acted.
type Done struct {
	Command Command   `json:"command"`
	Effect  string    `json:"effect"` // a sentence
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// phrases returns the words of each command in English, as fold leaves them.
func phrases() map[Command][]string {
	return map[Command][]string{
		CommandStop: {
			"stop", "stop it", "stop talking", "stop commenting", "be quiet", "quiet", "silence", "shut up", "hush", "pause", "enough",
		},
		CommandGoOn: {
			"go on", "continue", "carry on", "resume", "keep going", "keep talking", "start again", "talk again",
		},
		CommandUndo: {
			"never mind", "nevermind", "undo", "undo that", "undo it", "forget it", "forget that", "take that back", "cancel that",
		},
		CommandShorter: {
			"shorter", "be shorter", "be brief", "briefer", "be briefer", "less", "talk less", "say less", "keep it short", "make it shorter",
		},
		CommandLonger: {
			"longer", "be longer", "more", "talk more", "say more", "more detail", "more details", "make it longer",
		},
		CommandRepeat: {
			"repeat", "repeat that", "repeat it", "say that again", "say it again", "again", "once more", "what did you say", "come again",
		},
		CommandLouder: {
			"louder", "be louder", "speak up", "speak louder", "talk louder", "turn it up", "volume up", "turn up the volume",
		},
		CommandSofter: {
			"softer", "be softer", "quieter", "be quieter", "speak softer", "speak softly", "talk softer", "turn it down", "volume down",
			"turn down the volume", "lower your voice",
		},
	}
}

// frases returns those in Spanish.
func frases() map[Command][]string {
	return map[Command][]string{
		CommandStop: {
			"para", "detente", "alto", "callate", "calla", "silencio", "deja de hablar", "basta", "pausa",
		},
		CommandGoOn: {
			"sigue", "continua", "adelante", "reanuda", "sigue hablando", "vuelve a hablar",
		},
		CommandUndo: {
			"olvidalo", "dejalo", "deshaz", "deshazlo", "deshacer", "no importa", "cancelalo",
		},
		CommandShorter: {
			"mas corto", "mas breve", "se breve", "se mas breve", "habla menos", "di menos", "menos",
		},
		CommandLonger: {
			"mas largo", "habla mas", "di mas", "mas detalle", "mas detalles", "mas",
		},
		CommandRepeat: {
			"repite", "repitelo", "otra vez", "dilo otra vez", "de nuevo", "que has dicho", "que dijiste",
		},
		CommandLouder: {
			"mas alto", "mas fuerte", "habla mas alto", "habla mas fuerte", "sube el volumen", "sube la voz",
		},
		CommandSofter: {
			"mas bajo", "mas suave", "habla mas bajo", "habla mas suave", "baja la voz", "baja el volumen",
		},
	}
}

// SpokenOrders returns the sentences that a recognizer of orders shall know: the commands in English, and the orders and questions
// that the page offers about the generated worlds.
func SpokenOrders() []string {
	var out []string
	for _, command := range Commands() {
		out = append(out, phrases()[command]...)
	}
	for line := range strings.Lines(knownOrders) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// knownOrders are wordings that nano was trained on (worlds/train/words) and that the page offers (console/web/src/ask-words.js).
const knownOrders = `only tell me about goals
tell me the score every minute
tell me the score
tell me when somebody shoots
tell me when someone scores
tell me when the lights change
comment on the match
what's the score
who has the ball
who is ahead
how many goals have there been
only talk about red
only talk about blue
only talk about yellow
only talk about white
only talk about orange
only talk about violet
only talk about sky blue
tell me when somebody comes
only tell me about red coats
only tell me about parcels
ignore the dog
watch the gate
tell me when the lamp fails
watch the yard
who is at the gate
is there a parcel at the door
how many people are there
what colour is the car
is it raining
what is happening
what has changed`

// manners returns words around a command that change nothing.
func manners() (before, after []string) {
	return []string{"please", "hey", "ok", "okay", "now", "touchline", "por favor", "oye", "un poco", "a bit", "a little"},
		[]string{"please", "now", "touchline", "a bit", "a little", "por favor", "ahora", "ya", "un poco"}
}

// longestCommand is the longest text that is looked at, in bytes.
const longestCommand = 80

// ParseCommand returns the command that a text is, in English or Spanish: the whole text, apart from case, accents, punctuation
// and words such as "please". Any other text is an instruction: "stop at the corner flag" is no command.
func ParseCommand(text string) (Command, bool) {
	if len(text) > longestCommand {
		return "", false
	}
	folded := fold(text)
	before, after := manners()
	for trimmed := true; trimmed; {
		trimmed = false
		for _, w := range before {
			if rest, ok := strings.CutPrefix(folded, w+" "); ok {
				folded, trimmed = rest, true
			}
		}
		for _, w := range after {
			if rest, ok := strings.CutSuffix(folded, " "+w); ok {
				folded, trimmed = rest, true
			}
		}
	}
	for _, language := range []map[Command][]string{phrases(), frases()} {
		for command, list := range language {
			if slices.Contains(list, folded) {
				return command, true
			}
		}
	}
	return "", false
}

// fold returns a text in lower case, without accents and punctuation, its words one space apart.
func fold(text string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(text) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(unicode.ToLower(r))
		case unicode.IsMark(r) || r == '\'' || r == '’':
		default:
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// Order gives a commentator what a person typed or said: a command acts as one, any other text is an instruction. The
// command is nil for an instruction.
func Order(to Steerer, text, by string) (*Done, error) {
	if command, ok := ParseCommand(text); ok {
		done, err := to.Command(command, by)
		return &done, err
	}
	_, err := to.Change(Change{Instruction: &text}, by)
	return nil, err
}

// gainStep is what louder and softer change, dB.
const gainStep = 6

// maxUndo bounds the orders that can be taken back.
const maxUndo = 16

// ordered is what an order can change.
type ordered struct {
	instruction, by string
	active          bool
	profile         string
	inForce, made   Settings // made by people
}

// order is the state before and after an order that acted.
type order struct {
	before, after ordered
	waits         string // an instruction of the same Change that does not act yet; "" without
}

func (s *Session) orderedLocked() ordered {
	return ordered{s.instruction, s.instructionBy, s.active, s.profile.Name, s.settingsLocked(), s.set}
}

// rememberLocked carries out one order and keeps what it changed for CommandUndo. It reports whether that is anything.
func (s *Session) rememberLocked(act func()) bool {
	before := s.orderedLocked()
	act()
	after := s.orderedLocked()
	if reflect.DeepEqual(before, after) {
		return false
	}
	s.past = append(s.past[max(0, len(s.past)+1-maxUndo):], order{before: before, after: after})
	return true
}

// Command does a command at once. The error is a *RangeError for one that does not exist, and wraps ErrNothingTo for one
// that has nothing to act on. CommandRepeat may return ErrTooMuchToSay.
func (s *Session) Command(c Command, by string) (Done, error) {
	done := Done{Command: c, By: by, At: time.Now()}
	var err error
	s.locked(func() {
		if c == CommandUndo {
			done.Effect, err = s.undoLocked(by, done.At)
		} else {
			s.rememberLocked(func() { done.Effect, err = s.commandLocked(c) })
		}
		if err == nil {
			s.done = &done
		}
	})
	if err != nil {
		return Done{}, err
	}
	s.log.Info().Str("command", string(c)).Str("by", by).Msg("command")
	s.log.Debug().Str("effect", done.Effect).Msg("command done") // it may quote an instruction
	s.nudge()
	return done, nil
}

func (s *Session) commandLocked(c Command) (effect string, err error) {
	switch c {
	case CommandStop:
		if !s.active && s.speaking == nil {
			return "", fmt.Errorf("%w: commenting is off already", ErrNothingTo)
		}
		s.pauseLocked()
		return "Commenting is off. Say “go on” to hear more.", nil
	case CommandGoOn:
		if s.active {
			return "", fmt.Errorf("%w: commenting is on already", ErrNothingTo)
		}
		s.active = true
		s.actNowLocked(errReplaced)
		return "Commenting is on again.", nil
	case CommandUndo: // see Command
	case CommandShorter:
		return s.talkByLocked(-1)
	case CommandLonger:
		return s.talkByLocked(1)
	case CommandRepeat:
		return s.repeatLocked()
	case CommandLouder:
		return s.gainByLocked(gainStep)
	case CommandSofter:
		return s.gainByLocked(-gainStep)
	}
	return "", &RangeError{"command", fmt.Sprintf("one of %q", Commands()), fmt.Sprintf("%.40q", c)}
}

// pauseLocked ends commenting and keeps the instruction.
func (s *Session) pauseLocked() {
	s.active = false
	s.dropAllWaitingLocked()
	s.endTalkLocked(errStopped, true)
}

// undoLocked takes back the last order: what it changed, and nobody has changed since.
func (s *Session) undoLocked(by string, now time.Time) (string, error) {
	n := len(s.past)
	w, waited := s.dropWaitingLocked(by)
	switch {
	case waited && (n == 0 || s.past[n-1].waits != w.Instruction):
		return fmt.Sprintf("The waiting instruction “%s” is dropped.", w.Instruction), nil
	case n == 0:
		return "", fmt.Errorf("%w: there is no order to take back", ErrNothingTo)
	}
	was, after, current := s.past[n-1].before, s.past[n-1].after, s.orderedLocked()
	s.past = s.past[:n-1]
	if was.profile != after.profile {
		if p, err := s.findProfile(was.profile); err == nil { // else it was deleted
			s.useProfileLocked(p)
		}
	}
	// After the profile, which may have other values.
	back := s.settingsLocked().takeBack(was.inForce, after.inForce, current.inForce, after.made, current.made)
	s.applyLocked(back.differing(s.settingsLocked()))
	s.set = current.made.revert(was.made, after.made)
	if back.Preset != nil && *back.Preset != s.preset {
		s.preset = *back.Preset
		s.startLadder()
	}
	if was.instruction != "" && was.instruction != s.instruction {
		s.orders = append(s.orders, OrderEvent{WaitingOrder{was.instruction, was.by, now}, OrderActs})
	}
	s.instruction, s.instructionBy, s.active, s.orderedAt = was.instruction, was.by, was.active, now
	switch {
	case !s.active:
		s.endTalkLocked(errStopped, true)
		return "The last order is taken back. Commenting is off.", nil
	case s.instruction == "":
		s.actNowLocked(errReplaced)
		return "The last order is taken back. There is no instruction.", nil
	}
	s.actNowLocked(errReplaced)
	return fmt.Sprintf("The last order is taken back. The instruction is “%s”.", s.instruction), nil
}

func (s *Session) talkByLocked(step int) (string, error) {
	to := s.agent.Talkativeness + step
	if to < 1 || to > 5 {
		return "", fmt.Errorf("%w: talkativeness is %d, and goes from 1 to 5", ErrNothingTo, s.agent.Talkativeness)
	}
	s.configureLocked(Settings{Talkativeness: &to})
	words := "Shorter"
	if step > 0 {
		words = "Longer"
	}
	return fmt.Sprintf("%s comments: talkativeness is %d of 5.", words, to), nil
}

func (s *Session) gainByLocked(step float64) (string, error) {
	if s.opts.Audio == nil || !s.infer.Voice.Enabled {
		return "", fmt.Errorf("%w: speech is off", ErrNothingTo)
	}
	to := min(max(s.gain+step, inference.MinGain), inference.MaxGain)
	if to == s.gain {
		return "", fmt.Errorf("%w: the voice is at %+g dB, and goes from %+d to %+d", ErrNothingTo, s.gain, inference.MinGain, inference.MaxGain)
	}
	s.configureLocked(Settings{VoiceGain: &to})
	return fmt.Sprintf("The voice is at %+g dB.", to), nil
}

// repeatLocked has the last comment said again.
func (s *Session) repeatLocked() (string, error) {
	if s.latest == nil {
		return "", fmt.Errorf("%w: there is no comment yet", ErrNothingTo)
	}
	ids := s.latest.rec.FrameIDs
	anchor := window.Frame{ID: ids[len(ids)-1], VideoFrame: s.latest.anchor}
	anchor.Pix = nil
	again := Announcement{Text: strings.TrimSpace(s.latest.text), Reason: reasonAgain, Interrupt: true}
	if err := s.queueAnnouncement(announcement{Announcement: again, anchor: &anchor}); err != nil {
		return "", err
	}
	return "The last comment is said again.", nil
}
