// Package sphinx recognizes spoken orders on the CPU with Debian's pocketsphinx and its English model. It recognizes a list of
// sentences only, and returns no text for other speech.
//
// Two or three processes decode each utterance: one or two by a grammar of the wake words and orders, another as any sequence of
// phones. An order counts if its score is close to the phones' score. All are confined like the speech programs (internal/child).
// At most one process for each CPU runs at once.
package sphinx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"touchline/inference"
	"touchline/internal/rescue"
)

// Options configure a Recognizer.
type Options struct {
	// Orders are the sentences to recognize, in English.
	Orders []string
	// WakeWords begin an order if inference.Hearing has none; nil is "hey touchline".
	WakeWords []string
	// Model is the folder of the acoustic model and the dictionary; "" is the folder of Debian's package.
	Model string
}

// Recognizer implements inference.Recognizer.
type Recognizer struct {
	path, model string
	orders      []string
	wake        []string
	slots       chan struct{} // of running processes
	line        chan struct{} // for the next slot, unless an utterance goes first

	mu       sync.Mutex
	searches map[string]*searches // by wake words
	closed   bool
	running  sync.WaitGroup
}

var _ inference.Recognizer = (*Recognizer)(nil)

// ErrLanguage is wrapped by the error of any language but English.
var ErrLanguage = errors.New("pocketsphinx hears English only")

// errClosed is the error after Close.
var errClosed = errors.New("the recognizer is closed")

// DefaultWake is the usual wake word.
const DefaultWake = "hey touchline"

// Open checks that the program and its model are installed, and that all words have a pronunciation. The error wraps ErrMissing or
// ErrPronunciation.
func Open(o Options) (*Recognizer, error) {
	r := &Recognizer{
		model: cmp.Or(o.Model, modelFolder), wake: o.WakeWords, searches: map[string]*searches{},
		slots: make(chan struct{}, runtime.NumCPU()), line: make(chan struct{}, 1),
	}
	var err error
	if r.path, err = installed(r.model); err != nil {
		return nil, err
	}
	for _, s := range o.Orders {
		if s = Fold(s); s != "" && !slices.Contains(r.orders, s) {
			r.orders = append(r.orders, s)
		}
	}
	if len(r.orders) == 0 {
		return nil, errors.New("pocketsphinx needs orders to recognize")
	}
	if len(r.wake) == 0 {
		r.wake = []string{DefaultWake}
	}
	if _, err := r.searchesFor(r.wake); err != nil {
		return nil, err
	}
	return r, nil
}

// CheckWakeWords returns an error that wraps ErrPronunciation and names the words without a pronunciation.
func (r *Recognizer) CheckWakeWords(list []string) error {
	_, err := r.searchesFor(list)
	return err
}

// searches are the searches for a list of wake words.
type searches struct {
	wake []string // folded
	// orders begin with a wake word, addressed need none. The first grammar of each has no polite words, which are often recognized
	// in noise; the second is used if the first finds nothing.
	orders, addressed [2]search
}

// maxSearches bounds the cache of searches.
const maxSearches = 64

// searchesFor returns the searches for wake words, the Options' words if the list is empty.
func (r *Recognizer) searchesFor(wake []string) (*searches, error) {
	if len(wake) == 0 {
		wake = r.wake
	}
	folded := make([]string, 0, len(wake))
	for _, w := range wake {
		if w = Fold(w); w != "" {
			folded = append(folded, w)
		}
	}
	if len(folded) == 0 {
		return nil, fmt.Errorf("wake words %q: %w; choose English words", wake, ErrPronunciation)
	}
	key := strings.Join(folded, "\n")
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.searches[key]; ok {
		return s, nil
	}
	file, err := os.Open(filepath.Join(r.model, dictionaryFile))
	if err != nil {
		return nil, fmt.Errorf("open the dictionary: %w", err)
	}
	defer file.Close()
	list := words(folded, r.orders)
	dict, err := readDictionary(file, list)
	if err != nil {
		return nil, err
	}
	s := &searches{wake: folded}
	text := dict.file(list)
	// Wide beams: the usual ones lose long orders in noise.
	args := []string{"-jsgf", fd(searchFile), "-beam", "1e-80", "-pbeam", "1e-80", "-wbeam", "1e-60"}
	for i := range s.orders {
		s.orders[i] = search{args: args, words: text, text: grammar(folded, r.orders, false, i > 0)}
		s.addressed[i] = search{args: args, words: text, text: grammar(folded, r.orders, true, i > 0)}
	}
	if len(r.searches) >= maxSearches {
		clear(r.searches)
	}
	r.searches[key] = s
	return s, nil
}

// Recognizes implements inference.Recognizer.
func (*Recognizer) Recognizes() inference.Recognizes {
	return inference.Recognizes{Model: "pocketsphinx", Languages: []string{"en"}, OrdersOnly: true}
}

// Status implements inference.Recognizer.
func (*Recognizer) Status() inference.Status {
	return inference.Status{Phase: inference.PhaseReady, Percent: 100, Detail: "pocketsphinx: spoken orders in English"}
}

// Align implements inference.Recognizer.
func (*Recognizer) Align(context.Context, []float32, string, string) ([]inference.Word, error) {
	return nil, fmt.Errorf("pocketsphinx: %w", inference.ErrNoWordTimes)
}

// Close implements inference.Recognizer.
func (r *Recognizer) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
	return nil
}

// maxPart is the longest part of a recording in one process, in samples.
const maxPart = 20 * inference.RecognizerRate

// Transcribe implements inference.Recognizer: each part of the recording is an order or has no text.
func (r *Recognizer) Transcribe(ctx context.Context, sound []float32, h inference.Hearing) iter.Seq2[inference.Transcript, error] {
	return func(yield func(inference.Transcript, error) bool) {
		at := 0
		for _, part := range inference.SplitSound(sound, maxPart) {
			text, err := r.understand(ctx, part, h)
			if err != nil {
				yield(inference.Transcript{}, err)
				return
			}
			t := transcript(text, at, at+len(part))
			if at += len(part); !yield(t, nil) {
				return
			}
		}
	}
}

func transcript(text string, from, to int) inference.Transcript {
	return inference.Transcript{Text: text, Language: "en", Start: length(from), End: length(to), Final: true}
}

// Listen implements inference.Recognizer.
func (r *Recognizer) Listen(_ context.Context, h inference.Hearing) (inference.Utterance, error) {
	if _, err := r.prepare(h); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &utterance{recognizer: r, hearing: h, closed: ctx, cancel: cancel}, nil
}

// prepare returns the searches for a Hearing.
func (r *Recognizer) prepare(h inference.Hearing) (*searches, error) {
	if h.Language != "" && inference.Primary(h.Language) != "en" {
		return nil, fmt.Errorf("language %q: %w; leave the language empty, or choose inference.recognizer.program model or remote",
			h.Language, ErrLanguage)
	}
	return r.searchesFor(h.WakeWords)
}

// utterance is the sound of one live utterance.
type utterance struct {
	recognizer *Recognizer
	hearing    inference.Hearing
	sound      []float32
	closed     context.Context //nolint:containedctx // ends what runs
	cancel     context.CancelFunc
}

// maxSound bounds the sound of an utterance; an order is shorter.
const maxSound = 30 * inference.RecognizerRate

// Hear implements inference.Utterance: there is no text before the end.
func (u *utterance) Hear(_ context.Context, sound []float32) (inference.Transcript, error) {
	u.sound = append(u.sound, sound[:min(len(sound), max(0, maxSound-len(u.sound)))]...)
	return inference.Transcript{}, u.closed.Err()
}

// Finish implements inference.Utterance.
func (u *utterance) Finish(ctx context.Context, sound []float32) (inference.Transcript, error) {
	if _, err := u.Hear(ctx, sound); err != nil {
		return inference.Transcript{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.closed, cancel)() //nolint:contextcheck // it ends with either
	text, err := u.recognizer.understand(ctx, u.sound, u.hearing)
	return transcript(text, 0, len(u.sound)), err
}

// Close implements inference.Utterance.
func (u *utterance) Close() error {
	u.cancel()
	return nil
}

// understand returns the order in a sound, with its wake word; "" without one.
func (r *Recognizer) understand(ctx context.Context, sound []float32, h inference.Hearing) (string, error) {
	s, err := r.prepare(h)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return "", errClosed
	}
	r.running.Add(1)
	r.mu.Unlock()
	defer r.running.Done()
	grammars, good := s.orders, judgement.good
	if h.Addressed {
		grammars, good = s.addressed, judgement.goodAddressed
	}
	pcm := samples(sound)
	var known, free []segment
	g, gctx := rescue.WithContext(ctx)
	g.Go(func() (err error) {
		known, err = r.run(gctx, pcm, grammars[0], h.First)
		return err
	})
	g.Go(func() (err error) {
		// Narrow beams and sounds without their neighbours make it as fast as the grammar.
		free, err = r.run(gctx, pcm, search{words: grammars[0].words, args: []string{
			"-allphone", filepath.Join(r.model, phonesFile), "-allphone_ci", "yes", "-beam", "1e-20", "-pbeam", "1e-20", "-lw", "2.0",
		}}, h.First)
		return err
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	j := compare(known, free, s.wake)
	if !good(j) {
		if known, err = r.run(ctx, pcm, grammars[1], h.First); err != nil {
			return "", err
		}
		if j = compare(known, free, s.wake); !good(j) {
			return "", nil
		}
	}
	return j.text, nil
}
