package minicpmo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"touchline/inference"
	"touchline/inference/internal/kvcache"
	"touchline/inference/internal/ort"
	"touchline/inference/internal/tts"
	"touchline/inference/tokenizer"
	"touchline/models"
)

// TurnPositions is the longest turn, text and codes: two full pieces, of 11 positions and 499 codes that are fed, and 4.8 s of a third.
// About 43 s of usual speech.
const TurnPositions = 1152

const (
	// maxVoiceSlots is the number of answers that the model speaks at once, if it is not set.
	maxVoiceSlots = 16
	// noiseRows is the length of the vocoder's noise, which repeats.
	noiseRows = 8192
)

// speech is the model's own voice. Its language model works in the step loop, its sound on a thread and a stream of its own.
type speech struct {
	lm      *speechLM
	sounder *tts.Sounder
	talker  *tts.Talker
	names   map[string]bool // of its voices
	slots   int

	cancel context.CancelFunc
	ended  chan struct{} // the goroutine of the sound
}

// close ends the sound and frees everything.
func (v *speech) close() error {
	if v == nil {
		return nil
	}
	v.cancel()
	<-v.ended
	return v.lm.close()
}

// addVoice loads the voice of a bundle that has one.
func (e *Engine) addVoice(ctx context.Context, b *models.Bundle, sel *selection, rt *ort.Runtime, dev *ort.Device, o Options) error {
	s := sel.voice
	if s == nil {
		return nil
	}
	voices := o.test.voices
	if voices == nil {
		var err error
		if voices, err = e.loadVoices(ctx, b, o.Config.MiniCPM.Runtime, s.prompt/2); err != nil {
			return err
		}
	}
	v, ok := voices[inference.DefaultVoice]
	if !ok {
		return fmt.Errorf("%w: the bundle has no reference sound: add one with `touchline models voice add`", inference.ErrNoVoice)
	}
	s.voices, s.prompt = voices, 2*len(v.Codes)
	return e.openSpeech(ctx, s, rt, dev, o.Threads)
}

// chooseVoice gives a selection the voice of the bundle, if it has one. A bundle whose voice is not whole has none.
func (e *Engine) chooseVoice(b *models.Bundle, sel *selection, c inference.VoiceConfig) {
	var err error
	if sel.voice, err = chooseSpeech(b, sel, c); err == nil {
		return
	}
	sel.voice = nil
	if c.Enabled && b.Manifest.Dims.Speech != nil {
		e.mute(err)
	}
}

// maxVoices is the number of voices of an engine: each takes 0.2 to 0.4 GB of the device's memory.
const maxVoices = 8

// loadVoices returns the voices of a bundle, with as many codes if the default one has them. Without that it fails;
// others that cannot be read are left out.
func (e *Engine) loadVoices(ctx context.Context, b *models.Bundle, library string, codes int) (map[string]Voice, error) {
	v, err := LoadDefaultVoice(ctx, library, b, codes)
	if errors.Is(err, ErrShortVoice) && codes > ShortVoice {
		codes = ShortVoice
		v, err = LoadDefaultVoice(ctx, library, b, codes)
	}
	if err != nil {
		return nil, err
	}
	voices := map[string]Voice{inference.DefaultVoice: v}
	names, err := Voices(b)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == inference.DefaultVoice {
			continue
		}
		if len(voices) == maxVoices {
			e.log.Warn().Str("voice", name).Int("most", maxVoices).Msg("voice left out: there are too many")
			continue
		}
		v, err := LoadVoice(b, name, codes)
		if err != nil {
			e.log.Warn().Err(err).Str("voice", name).Msg("voice left out")
			continue
		}
		voices[name] = v
	}
	return voices, nil
}

// voiceName returns the voice of a prompt: "model:NAME", else the default one.
func (e *Engine) voiceName(voice string) string {
	if name, ok := strings.CutPrefix(voice, inference.VoiceModel+":"); ok && e.voice.names[name] {
		return name
	}
	return inference.DefaultVoice
}

// speechSelection are the graphs and sizes of a voice.
type speechSelection struct {
	bundle  *models.Bundle
	lm      [2]models.Graph // the condition and the language model
	files   map[models.Kind]string
	float   models.Type
	weights int64 // bytes, of all graphs
	dims    models.Dims
	layout  kvcache.Layout // of its language model
	prompt  int            // frames
	known   int            // voices of the bundle, before they are loaded
	voices  map[string]Voice
}

// chooseSpeech returns the graphs of a bundle's voice, or an error that says why it has none. It has the slots of the settings.
func chooseSpeech(b *models.Bundle, sel *selection, c inference.VoiceConfig) (*speechSelection, error) {
	if !c.Enabled || b.Manifest.Dims.Speech == nil {
		return nil, inference.ErrNoVoice
	}
	weights, float := models.WeightsFloat16, models.Float16
	if _, exact := b.Find(models.KindTTS, models.WeightsFloat32, sel.device); exact || sel.device == models.DeviceCPU {
		weights, float = models.WeightsFloat32, models.Float32
	}
	s := &speechSelection{bundle: b, files: map[models.Kind]string{}, float: float, dims: b.Manifest.Dims, prompt: 2 * LongVoice, known: 1}
	if c.Prompt == inference.ShortPrompt {
		s.prompt = 2 * ShortVoice
	}
	for _, k := range []models.Kind{
		models.KindTTSCondition, models.KindTTS, models.KindFlowEncoder, models.KindFlowDiT, models.KindFlowDiTOnce, models.KindVocoder,
	} {
		g, ok := b.Find(k, weights, sel.device)
		if !ok {
			return nil, fmt.Errorf("%w: %w", inference.ErrNoVoice, lacks(&b.Manifest, k, weights, sel.device))
		}
		s.files[k] = b.Path(g.File)
		s.weights += g.WeightBytes
		switch k { //nolint:exhaustive // those that are opened by their graph
		case models.KindTTSCondition:
			s.lm[0] = g
		case models.KindTTS:
			s.lm[1] = g
		}
	}
	if g, ok := b.Find(models.KindVocoderTail, weights, sel.device); ok { // older bundles have none
		s.files[g.Kind] = b.Path(g.File)
		s.weights += g.WeightBytes
	}
	if t := s.dims.Speech.TTS; sel.device == models.DeviceCUDA { // the table of the text's embeddings stays on the host
		s.weights -= int64(t.TextRows) * int64(t.Hidden) * int64(float.Size())
	}
	if names, err := Voices(b); err == nil {
		s.known = min(len(slices.DeleteFunc(names, func(n string) bool { return n == inference.DefaultVoice }))+1, maxVoices)
	}
	t := b.Manifest.Dims.Speech.TTS
	s.layout = kvcache.Layout{
		Layers: t.Layers, Slots: cmp.Or(c.Slots, min(sel.layout.Slots, maxVoiceSlots)), KVHeads: t.Heads,
		MaxLen: min(TurnPositions, t.MaxPositions), HeadDim: t.HeadDim(), ElemSize: float.Size(),
	}
	return s, s.layout.Validate()
}

// openSpeech loads the voice. It is called by the goroutine that owns the device; the sound gets a goroutine of its own,
// which ends with ctx.
func (e *Engine) openSpeech(ctx context.Context, s *speechSelection, rt *ort.Runtime, dev *ort.Device, threads int) (err error) {
	lm, err := openSpeechLM(rt, dev, s.bundle, s.lm, s.layout, threads)
	if err != nil {
		return err
	}
	if err := lm.warm(ctx, s.layout); err != nil {
		return errors.Join(err, lm.close())
	}
	v := &speech{lm: lm, names: map[string]bool{}, slots: s.layout.Slots, ended: make(chan struct{})}
	for name := range s.voices {
		v.names[name] = true
	}
	ctx, v.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	opened := make(chan error, 1)
	e.wg.Go(func() {
		defer close(v.ended)
		e.sound(ctx, v, s, rt, dev, threads, opened)
	})
	if err := <-opened; err != nil {
		return err
	}
	v.talker, err = tts.NewTalker(tts.TalkerOptions{
		LM: lm, Layout: s.layout, Settings: tts.Official(), End: int32(s.dims.Speech.TTS.Codes - 1), //nolint:gosec // a vocabulary
		Silence: silenceCode, Fatal: fatal, Now: e.now, Wake: e.loop.inbox.wake.Set,
	}, v.sounder)
	if err != nil {
		return err
	}
	e.voice, e.loop.voice = v, v.talker
	return nil
}

// SpeechLM is the voice's language model for the conformance check.
type SpeechLM interface {
	tts.LM
	// FeedRows is Feed with the condition of a piece and its marks, [positions,hidden] of the model.
	FeedRows(slot, length int, rows []float32) (int, error)
}

// OpenSpeechLM opens the voice's language model alone, with its graphs, for the conformance check.
func OpenSpeechLM(
	rt *ort.Runtime, dev *ort.Device, b *models.Bundle, condition, lm models.Graph, l kvcache.Layout,
) (_ SpeechLM, closeIt func() error, _ error) {
	m, err := openSpeechLM(rt, dev, b, [2]models.Graph{condition, lm}, l, 1)
	if err != nil {
		return nil, nil, err
	}
	return m, m.close, nil
}

// sound is the goroutine of the voice's sound.
func (e *Engine) sound(
	ctx context.Context, v *speech, s *speechSelection, rt *ort.Runtime, beside *ort.Device, threads int,
	opened chan<- error,
) {
	runtime.LockOSThread() // Never unlocked, as in own.
	dev, err := beside.Beside()
	if err != nil {
		opened <- err
		return
	}
	defer func() { _ = dev.Close() }()
	w, err := e.openSound(ctx, s, rt, dev, threads)
	if err != nil {
		opened <- err
		return
	}
	defer func() { _ = w.close() }()
	v.sounder = tts.NewSounder(w, e.now, fatal, e.loop.inbox.wake.Set)
	opened <- nil
	if err := v.sounder.Run(ctx); err != nil {
		e.log.Error().Err(err).Msg("the voice is lost")
	}
}

// openSound opens the voice's sound with its voices, and warms it up.
func (e *Engine) openSound(ctx context.Context, s *speechSelection, rt *ort.Runtime, dev *ort.Device, threads int) (*speechWave, error) {
	w, err := openSpeechWave(rt, dev, waveOptions{
		files: [5]string{
			s.files[models.KindFlowEncoder], s.files[models.KindFlowDiT], s.files[models.KindFlowDiTOnce], s.files[models.KindVocoder],
			s.files[models.KindVocoderTail],
		},
		float: s.float, dims: *s.dims.Speech, slots: s.layout.Slots, prompt: s.prompt, threads: threads,
		noise: randomNoise(s.prompt, s.dims.Speech.Flow.Mel, e.seed),
	})
	if err != nil {
		return nil, err
	}
	for name, voice := range s.voices {
		if err := w.AddVoice(name, voice); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if err := w.warm(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// randomNoise returns normal noise.
func randomNoise(prompt, mel int, seed uint64) waveNoise {
	random := rand.New(rand.NewPCG(seed, 2))
	normal := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(random.NormFloat64())
		}
		return out
	}
	return waveNoise{
		flow: normal((prompt + keptPrompt + 2*tts.WindowCodes) * mel), vocoder: normal(noiseRows * models.NoiseColumns),
		rows: func(_, n int) int { return random.IntN(noiseRows - n + 1) },
	}
}

// reader cuts the tokens of an answer into pieces for the voice, as the official streaming call: the state of a token comes with the
// next one, so the last of an answer that was cut is not spoken.
type reader struct {
	turn  *tts.Turn
	piece tts.Piece
	held  *Token // its state is not known yet
	text  strings.Builder
	ready []tts.Piece // that wait until the answer is known to have words
	says  bool
}

// take takes a token, and reports whether the answer has become one that is spoken.
func (r *reader) take(t Token) (begins bool) {
	r.text.WriteString(t.Text)
	switch {
	case t.ID < 0: // the end of a character
		r.piece.Text += t.Text
		return false
	case r.held != nil:
		r.piece.IDs = append(r.piece.IDs, r.held.ID)
		r.piece.Hidden = append(r.piece.Hidden, t.Hidden...)
		r.piece.Text += r.held.Text
		r.held = nil
	}
	if t.Stop {
		return r.end(false)
	}
	r.held = &t
	if len(r.piece.IDs) == SpeechChunk {
		return r.hand()
	}
	return false
}

// end hands over the rest. cut is set if the answer stopped before its end.
func (r *reader) end(cut bool) bool {
	if r.piece.Last {
		return false
	}
	if r.held != nil { // it is shown, and not spoken
		r.piece.Text += r.held.Text
		r.held = nil
	}
	r.piece.Last, r.piece.Cut = true, cut
	return r.hand()
}

// hand gives the piece to the turn, once the answer is known to have words.
func (r *reader) hand() (begins bool) {
	last := r.piece.Last
	r.ready = append(r.ready, r.piece)
	r.piece = tts.Piece{Last: last}
	if !r.says {
		r.says = inference.Judge(r.text.String(), last) == inference.Says
		begins = r.says
	}
	if r.says {
		for _, p := range r.ready {
			r.turn.Feed(p)
		}
		r.ready = nil
	}
	return begins
}

// answered is a step of an answer.
type answered struct {
	token Token
	err   error
}

// spoken yields an answer with its sound: the text at once, the sound as it is made, also after the text has ended. Sound waits for the
// end of that of the room's last answer.
func (s *Session) spoken(ctx context.Context, r Request, voice string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		tokens := make(chan answered)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer close(tokens)
			for t, err := range s.e.Answer(ctx, r) {
				select {
				case tokens <- answered{t, err}:
				case <-ctx.Done():
					return
				}
			}
		})
		draws := rand.New(rand.NewPCG(r.Seed, 3))
		m := mouth{e: s.e, reader: reader{turn: tts.NewTurn(voice, draws.Float64)}, yield: yield, silent: r.Forced != nil}
		if inference.IsBehind(ctx) {
			m.reader.turn.Behind()
		}
		if !m.silent { // a given text does not wait
			m.voice = s.voice
			s.speaking.Store(m.reader.turn)
		}
		defer m.leave()
		m.run(ctx, tokens)
	}
}

// mouth joins the tokens of an answer and the sound of its turn.
type mouth struct {
	e      *Engine
	reader reader
	yield  func(inference.Chunk, error) bool
	silent bool // the text is known already

	voice    chan struct{} // of the room; nil if it need not be held
	waits    bool          // the turn is to be submitted when the voice is held
	holds    bool
	speaking bool // the turn was submitted, and has not ended
	sounded  time.Duration
	words    []inference.WordTime // of the sound, from its first sample
}

func (m *mouth) run(ctx context.Context, tokens <-chan answered) {
	var failed error
	for tokens != nil || m.speaking || m.waits {
		var wake <-chan struct{}
		if m.speaking {
			wake = m.reader.turn.Wake()
		}
		var free chan<- struct{}
		if m.waits {
			free = m.voice
		}
		select {
		case t, ok := <-tokens:
			begins := false
			switch {
			case !ok:
				tokens = nil
				begins = failed == nil && m.reader.end(true)
			case t.err != nil:
				failed = t.err
				m.waits = false
				m.reader.turn.Cancel()
			default:
				if t.token.Text != "" && !m.silent && !m.yield(inference.Chunk{Text: t.token.Text}, nil) {
					return
				}
				begins = m.reader.take(t.token)
			}
			if begins && !m.begin() {
				return
			}
			if tokens == nil && failed == nil && !m.silent && (m.speaking || m.waits) && !m.yield(inference.Chunk{TextEnds: true}, nil) {
				return
			}
		case free <- struct{}{}:
			m.waits, m.holds = false, true
			if !m.submit() {
				return
			}
		case <-wake:
			if !m.listen() {
				return
			}
		case <-ctx.Done():
			m.yield(inference.Chunk{}, ctx.Err())
			return
		}
	}
	if failed != nil {
		m.yield(inference.Chunk{}, failed)
	}
}

// begin submits the turn, when the room's last one has ended.
func (m *mouth) begin() bool {
	if m.voice == nil {
		return m.submit()
	}
	m.waits = true
	return true
}

// leave cancels the turn, which has no effect on one that has ended, and lets the room's next one begin.
func (m *mouth) leave() {
	m.reader.turn.Cancel()
	if m.holds {
		<-m.voice
	}
}

func (m *mouth) submit() bool {
	if err := m.e.voice.talker.Submit(m.reader.turn); err != nil {
		return m.lost(err)
	}
	m.speaking = true
	return true
}

// listen passes on what the turn has. It reports whether the reader goes on.
func (m *mouth) listen() bool {
	for {
		sound, ok, ended, err := m.reader.turn.Take()
		switch {
		case ok:
			c := inference.Chunk{Audio: sound.Samples, AudioRate: tts.Rate, Words: append([]inference.WordTime{}, sound.Words...)}
			for _, w := range sound.Words {
				m.words = append(m.words, inference.WordTime{Text: w.Text, Start: w.Start + m.sounded, End: w.End + m.sounded})
			}
			m.sounded += time.Duration(len(sound.Samples)) * time.Second / tts.Rate
			if !m.yield(c, nil) {
				return false
			}
		case ended:
			m.speaking = false
			if err == nil || errors.Is(err, tts.ErrCancelled) {
				return true
			}
			if errors.Is(err, tts.ErrTooLong) { // the rest is text
				m.e.stats.longTurns.Add(1)
				return true
			}
			return m.lost(err)
		default:
			return true
		}
	}
}

// lost says from where on the answer has no sound.
func (m *mouth) lost(err error) bool {
	m.e.stats.lostTurns.Add(1)
	text, at := m.reader.text.String(), 0
	for _, w := range m.words {
		if w.End > m.sounded {
			break
		}
		if i := strings.Index(text[at:], w.Text); i >= 0 {
			at += i + len(w.Text)
		}
	}
	return m.yield(inference.Chunk{VoiceFailed: &inference.VoiceFailure{From: sentenceStart(text, at), Err: err}}, nil)
}

// sentenceStart returns where the sentence at a byte of a text begins; a sentence that ends there is over.
func sentenceStart(text string, at int) int {
	start := 0
	for i, r := range text[:at] {
		next := i + utf8.RuneLen(r)
		switch {
		case strings.ContainsRune("。！？", r):
			start = next
		case strings.ContainsRune(".!?", r) && (next == len(text) || text[next] == ' ' || text[next] == '\n'):
			start = next
		}
	}
	return start
}

var (
	_ inference.Speaker = (*Session)(nil)
	_ inference.Husher  = (*Session)(nil)
)

// Hush implements inference.Husher.
func (s *Session) Hush() {
	if t := s.speaking.Load(); t != nil {
		t.Cancel()
	}
}

// readAloud precedes a text that the model did not write. The answer is given, so its words matter little.
const readAloud = "Read this text aloud, word for word:\n\n"

// longestReading is the length in bytes of a text that is read as one turn; it keeps a turn within its slot.
const longestReading = 300

// Speak reads a text that is not an answer: the model's states while it is made to write the text become speech.
func (s *Session) Speak(ctx context.Context, text, voice, _ string) iter.Seq2[inference.Chunk, error] {
	return func(yield func(inference.Chunk, error) bool) {
		if s.e.voice == nil {
			yield(inference.Chunk{}, inference.ErrNoVoice)
			return
		}
		from := 0
		for _, part := range sentences(text) {
			at := from
			from += len(part)
			if !yield(inference.Chunk{Text: part}, nil) {
				return
			}
			if inference.Judge(part, true) != inference.Says {
				continue
			}
			r, err := s.reading(part, !inference.IsBehind(ctx))
			if err != nil {
				yield(inference.Chunk{}, err)
				return
			}
			for c, err := range s.spoken(ctx, r, s.e.voiceName(voice)) {
				if f := c.VoiceFailed; f != nil {
					c.VoiceFailed = &inference.VoiceFailure{From: at + f.From, Err: f.Err}
				}
				if !yield(c, err) || err != nil || c.VoiceFailed != nil {
					return
				}
			}
		}
	}
}

// reading returns the request that makes the model write a text.
func (s *Session) reading(text string, urgent bool) (Request, error) {
	e := s.e
	if s.closed.Load() {
		return Request{}, ErrClosed
	}
	prompt, err := e.streaming("", []tokenizer.Part{{Text: readAloud + text, Literal: true}})
	ids := e.tokens.EncodeLiteral(text)
	return Request{
		Prompt: prompt, Rules: e.speech, Chunk: SpeechChunk, Hidden: true, Forced: ids, MaxTokens: len(ids) + 1, Urgent: urgent,
		Seed: e.seed<<40 ^ s.source<<20 ^ s.asked.Add(1),
	}, err
}

// sentences cuts a text after sentences into parts of at most longestReading bytes, or at spaces where a sentence is longer.
func sentences(text string) (parts []string) {
	for len(text) > longestReading {
		at := sentenceStart(text, longestReading)
		if at == 0 {
			if at = strings.LastIndexByte(text[:longestReading], ' '); at <= 0 {
				for at = longestReading; !utf8.RuneStart(text[at]); at-- {
				}
			}
		}
		parts, text = append(parts, text[:at]), text[at:]
	}
	return append(parts, text)
}
