package graph

import (
	"fmt"
	"math"
	"strconv"

	"touchline/models"
	"touchline/models/onnx"
)

// Constants of the vocoder; the ones that the engine needs too are in package models.
const (
	overlap    = models.VocoderKept * models.FrameSamples
	harmonics  = models.Harmonics
	window     = models.VocoderWindow
	hop        = models.VocoderHop
	sampleRate = 24000
	bins       = window/2 + 1
)

// Vocoder describes HiFT (arXiv:2309.09493, on a source with harmonics), from frames of
// the spectrogram to sound. A run makes T frames of sound: those that the last run
// left, and new ones. With H = 480*VocoderKept samples:
//
//	mel              float32 [B,N,mel]       new frames
//	frames           int64 [T]               the frames to use, of past.mel and mel together: from 8 on in the first run of
//	                                         a speech, from 0 on in the others. At least VocoderKept
//	noise            float32 [R,NoiseColumns] normal noise
//	noise_rows       int64 [B,8*T]           the row of each eighth of a frame
//	resumed          int64 [B,1]             0 in the first run of a speech: past.source and past.wave are ignored; else 1
//	past.mel         float32 [B,VocoderKept,mel]
//	past.source      float32 [B,1,H]
//	past.wave        float32 [B,H]
//
//	wave             float32 [B,480*T]       the last H samples are for the next run, unless the speech ends
//	present.mel, .source, .wave              as past; can be the same memory
//
// Options.Check describes the network without what connects runs: mel has all T frames,
// and there are no frames, resumed, past and present; the outputs are pitch [B,T,1] in
// Hz, source [B,1,480*T], spectrum [B,18,120*T+1] and wave.
//
// The pitch, the source, the spectrum, and the transforms to and from it compute in float32
// on all devices: at lower precision the phase drifts.
func Vocoder(d models.Dims, o Options) (*Description, error) { return describeVocoder(d, o, false) }

// VocoderTail describes the network of Vocoder for the end of a speech, which has any number t of frames up to T, so
// that one shape serves all: what follows the t frames is 0 before every convolution, as beyond the end of a run of t.
// Only the first 480*t samples are sound. It has no present outputs, and these inputs besides:
//
//	counts           float32 [1,1,T]         1 for the first t frames, then 0
//	heard            int64 [480*T+16]        the sample of the source at each place of its transform, which begins 8
//	                                         samples before the first: it is reflected at both ends
//	edges            float32 [480*T]         1, and more at the first and the last samples of the 480*t
//
// TailInputs returns these inputs.
func VocoderTail(d models.Dims, o Options) (*Description, error) { return describeVocoder(d, o, true) }

func describeVocoder(d models.Dims, o Options, tail bool) (*Description, error) {
	if err := checkSpeech(d, o); err != nil {
		return nil, fmt.Errorf("describe the vocoder: %w", err)
	}
	name := "vocoder"
	if tail {
		name, o.Check = "vocoder_tail", false
	}
	b := vocoder{newNetwork(name, o), d.Speech.Vocoder, d.Speech.Flow.Mel, tail}
	return b.build(), nil
}

// vocoder builds the graph of the vocoder.
type vocoder struct {
	*network
	models.Vocoder

	mel  int
	tail bool
}

func (b *vocoder) build() *Description {
	b.ports()
	mel := "mel"
	if !b.options.Check {
		all := b.node("Concat", "mel.all", []string{"past.mel", "mel"}, onnx.Int("axis", 1))
		mel = b.node("Gather", "mel.used", []string{all, "frames"}, onnx.Int("axis", 1))
		b.keep("present.mel", mel, 1, -models.VocoderKept)
	}
	columns := b.node("Transpose", "mel.columns", []string{mel}, onnx.Ints("perm", 0, 2, 1))
	columns = b.counted(columns, 1, models.Float32)
	pitch := b.pitch(columns)
	source := b.source(b.phases(pitch), pitch)
	spectrum := b.stack(columns, b.transform(source))
	b.join(b.inverse(spectrum))
	if b.tail {
		return b.describe(models.KindVocoderTail)
	}
	return b.describe(models.KindVocoder)
}

// keep adds the last of x as an output for the next run.
func (b *vocoder) keep(name, x string, axis, from int) {
	if !b.tail {
		b.slice(name, x, axis, from, end)
	}
}

// columnsOf returns the rate of the transform, which has one column more.
const columnsOf = models.FrameSamples / hop

// counted returns x, of type t and with rate columns per frame, with 0 after the frames of a tail.
func (b *vocoder) counted(x string, rate int, t models.Type) string {
	if !b.tail {
		return x
	}
	name := "counts." + strconv.Itoa(rate)
	if typed := name + "." + t.String(); !b.known[typed] {
		b.known[typed] = true
		b.cast(typed, b.counts(name, rate), t)
	}
	return b.node("Mul", x+".counted", []string{x, name + "." + t.String()})
}

// counts adds the mask of a rate, once.
func (b *vocoder) counts(name string, rate int) string {
	if rate == 1 {
		return "counts"
	}
	if b.known[name] {
		return name
	}
	b.known[name] = true
	ones := make([]float64, rate)
	for i := range ones {
		ones[i] = 1
	}
	m := b.node("Unsqueeze", name+".each", []string{"counts", b.constant("axis.columns", 3)})
	m = b.node("Mul", name+".all", []string{m, b.numbers(name+".ones", ones, rate)})
	line := b.constant("source.shape", 0, 1, -1)
	if rate != columnsOf {
		return b.node("Reshape", name, []string{m, line})
	}
	m = b.node("Reshape", name+".line", []string{m, line})
	return b.node("Concat", name, []string{b.numbers(name+".first", []float64{1}, 1, 1, 1), m}, onnx.Int("axis", 2))
}

func (b *vocoder) ports() {
	b.input("noise", models.Float32, "R", models.NoiseColumns)
	b.input("noise_rows", models.Int64, "B", "E")
	b.output("wave", models.Float32, "B", "W")
	if b.options.Check {
		b.input("mel", models.Float32, "B", "T", b.mel)
		b.output("pitch", models.Float32, "B", "T", 1)
		b.output("source", models.Float32, "B", 1, "W")
		b.output("spectrum", models.Float32, "B", 2*bins, "X")
		return
	}
	b.input("mel", models.Float32, "B", "N", b.mel)
	b.input("frames", models.Int64, "T")
	b.input("resumed", models.Int64, "B", 1)
	both := func(name string, shape ...any) {
		b.input("past."+name, models.Float32, shape...)
		if !b.tail {
			b.output("present."+name, models.Float32, shape...)
		}
	}
	if b.tail {
		b.input("counts", models.Float32, 1, 1, "T")
		b.input("heard", models.Int64, "H")
		b.input("edges", models.Float32, "W")
	}
	both("mel", "B", models.VocoderKept, b.mel)
	both("source", "B", 1, overlap)
	both("wave", "B", overlap)
}

// convolution holds the weights of a convolution and the form of its node.
type convolution struct {
	weight, bias          *Formula
	typ                   models.Type
	stride, pad, dilation int
}

// size returns the taps of the convolution.
func (c convolution) size() int { return c.weight.shape[2] }

// same pads a convolution so that its output is as long as its input.
func (c convolution) same() convolution {
	c.pad = (c.size() - 1) * max(c.dilation, 1) / 2
	return c
}

// weights returns a convolution of the checkpoint, with weight norm: [out,in,size], or
// [in,out,size] for a transposed one.
func (b *vocoder) weights(source string, out int, shape ...int) convolution {
	return convolution{weight: normed("hift."+source, shape...), bias: tensor("hift."+source+".bias", out), typ: b.float}
}

// convolve adds a convolution; op is Conv or ConvTranspose.
func (b *vocoder) convolve(op, name, x string, c convolution) string {
	add := func(suffix string, f *Formula) string {
		return b.weight(Weight{Name: name + suffix, Type: c.typ, Shape: f.shape, Rule: RuleFormula, Formula: f})
	}
	inputs := []string{x, add(".weight", c.weight)}
	if c.bias != nil {
		inputs = append(inputs, add(".bias", c.bias))
	}
	return b.node(op, name, inputs, onnx.Ints("kernel_shape", int64(c.size())), onnx.Ints("strides", int64(max(c.stride, 1))),
		onnx.Ints("dilations", int64(max(c.dilation, 1))), onnx.Ints("pads", int64(c.pad), int64(c.pad)))
}

// number adds a constant of one value, in float32.
func (b *vocoder) number(v float64) string {
	return b.numbers(fmt.Sprint("number.", v), []float64{v}, 1)
}

// numbers adds a constant in float32.
func (b *vocoder) numbers(name string, values []float64, shape ...int) string {
	return b.weight(Weight{Name: name, Type: models.Float32, Shape: shape, Rule: RuleFormula, Formula: fixed(values, shape...)})
}

// pitch adds the predictor of the pitch of each frame, in Hz.
func (b *vocoder) pitch(x string) string {
	in := b.mel
	for _, k := range []string{"0", "2", "4", "6", "8"} {
		c := b.weights("f0_predictor.condnet."+k, b.Pitch, b.Pitch, in, 3).same()
		c.typ = models.Float32
		x = b.node("Elu", "pitch."+k+".elu", []string{b.convolve("Conv", "pitch."+k, x, c)})
		x = b.counted(x, 1, c.typ)
		in = b.Pitch
	}
	x = b.node("Transpose", "pitch.rows", []string{x}, onnx.Ints("perm", 0, 2, 1))
	classifier := func(which string, f *Formula) string {
		return b.weight(Weight{
			Name: "pitch.classifier." + which, Type: models.Float32, Shape: f.shape, Rule: RuleFormula, Formula: f,
		})
	}
	const source = "hift.f0_predictor.classifier."
	x = b.node("MatMul", "pitch.product", []string{x, classifier("weight", turned(tensor(source+"weight", 1, b.Pitch)))})
	x = b.node("Add", "pitch.signed", []string{x, classifier("bias", tensor(source+"bias", 1))})
	return b.node("Abs", "pitch", []string{x})
}

// Types of values between nodes (TensorProto.DataType).
const (
	boolean = models.Type(9)
	double  = models.Type(11)
)

// phases adds the phase of each harmonic at each sample [B,T,480,harmonics], in turns. At the
// middle of each frame it is exact: the sum of the frames so far, in float64, since these are
// thousands of turns. Between the middles it is linear.
func (b *vocoder) phases(pitch string) string {
	turns := b.cast("phase.pitch", pitch, double)
	numbers := b.constant("phase.harmonics", 1, 2, 3, 4, 5, 6, 7, 8, harmonics)
	turns = b.node("Mul", "phase.hz", []string{turns, b.cast("phase.harmonics.wide", numbers, double)})
	rate := b.cast("phase.rate", b.constant("sample_rate", sampleRate), double)
	samples := b.cast("phase.samples", b.constant("frame_samples", models.FrameSamples), double)
	turns = b.fraction("phase.sample", b.node("Div", "phase.sample.turns", []string{turns, rate}))
	sum := b.node("CumSum", "phase.sum", []string{turns, b.constant("axis.time", 1)})
	sum = b.fraction("phase.frame", b.node("Mul", "phase.frame.turns", []string{sum, samples}))
	sum = b.cast("phase.middle", sum, models.Float32)

	// The difference from each middle to the next; before the first and after the last it is 0.
	way := b.node("Mul", "phase.way.wide", []string{b.slice("phase.way.turns", turns, 1, 1, end), samples})
	way = b.cast("phase.way", way, models.Float32)
	if b.tail {
		rows := b.node("Transpose", "counts.rows", []string{"counts"}, onnx.Ints("perm", 0, 2, 1))
		way = b.node("Mul", "phase.way.counted", []string{way, b.slice("counts.rows.next", rows, 1, 1, end)})
	}
	way = b.node("Pad", "phase.ways", []string{way, b.constant("phase.pads", 0, 1, 0, 0, 1, 0)})
	sum = b.node("Concat", "phase.starts", []string{b.slice("phase.first", sum, 1, 0, 1), sum}, onnx.Int("axis", 1))
	share := make([]float64, models.FrameSamples)
	for i := range share {
		share[i] = (float64(i) + 0.5) / models.FrameSamples
	}
	between := b.constant("axis.between", 2)
	way = b.node("Unsqueeze", "phase.ways.samples", []string{way, between})
	way = b.node("Mul", "phase.added", []string{way, b.numbers("phase.share", share, 1, 1, models.FrameSamples, 1)})
	sum = b.node("Add", "phase.all", []string{way, b.node("Unsqueeze", "phase.starts.samples", []string{sum, between})})
	sum = b.node("Reshape", "phase.line", []string{sum, b.constant("phase.line.shape", 0, -1, harmonics)})
	sum = b.slice("phase.cut", sum, 1, models.FrameSamples/2, -models.FrameSamples/2)
	return b.node("Reshape", "phases", []string{sum, b.constant("frames.shape", 0, -1, models.FrameSamples, harmonics)})
}

// fraction returns the fractional part of x.
func (b *vocoder) fraction(name, x string) string {
	return b.node("Sub", name, []string{x, b.node("Floor", name+".whole", []string{x})})
}

// source adds the excitation [B,1,480*T]: harmonics of the pitch with some noise; without a pitch
// (below 10 Hz) more noise.
func (b *vocoder) source(phases, pitch string) string {
	sines := b.node("Sin", "source.sines", []string{b.node("Mul", "source.angles", []string{phases, b.number(2 * math.Pi)})})
	noise := b.node("Gather", "source.noise.rows", []string{"noise", "noise_rows"}, onnx.Int("axis", 0))
	noise = b.node("Reshape", "source.noise", []string{noise, b.constant("frames.shape", 0, -1, models.FrameSamples, harmonics)})
	voiced := b.node("Greater", "source.voiced", []string{pitch, b.number(10)})
	between := b.constant("axis.between", 2)
	voiced = b.node("Unsqueeze", "source.voiced.samples", []string{voiced, between})
	part := func(name, x string, yes, no float64) string {
		gain := b.node("Where", name+".gain", []string{voiced, b.number(yes), b.number(no)})
		return b.node("Mul", name, []string{x, gain})
	}
	const line = "hift.m_source.l_linear."
	weight := b.weight(Weight{
		Name: "source.weight", Type: models.Float32, Shape: []int{harmonics, 1}, Rule: RuleTranspose, Sources: []string{line + "weight"},
	})
	bias := b.weight(Weight{Name: "source.bias", Type: models.Float32, Shape: []int{1}, Rule: RuleCopy, Sources: []string{line + "bias"}})
	x := b.node("Add", "source.harmonics", []string{part("source.tones", sines, 0.1, 0), part("source.hiss", noise, 0.003, 0.1/3)})
	x = b.node("Add", "source.sum", []string{b.node("MatMul", "source.product", []string{x, weight}), bias})
	x = b.node("Tanh", "source.tanh", []string{x})
	shape := b.constant("source.shape", 0, 1, -1)
	if b.options.Check {
		return b.node("Reshape", "source", []string{x, shape})
	}
	x = b.node("Reshape", "source.new", []string{x, shape})
	first, rest := b.slice("source.first", x, 2, 0, overlap), b.slice("source.rest", x, 2, overlap, end)
	resumed := b.node("Unsqueeze", "resumed.source", []string{b.cast("resumed.bool", "resumed", boolean), between})
	first = b.node("Where", "source.start", []string{resumed, "past.source", first})
	x = b.node("Concat", "source.all", []string{first, rest}, onnx.Int("axis", 2))
	b.keep("present.source", x, 2, -overlap)
	return x
}

// transform adds the short-time Fourier transform of the source: the real and the
// imaginary parts, [B,2*bins,120*T+1].
func (b *vocoder) transform(source string) string {
	var x string
	if b.tail {
		x = b.node("Gather", "stft.padded", []string{source, "heard"}, onnx.Int("axis", 2))
	} else {
		pads := b.constant("stft.pads", 0, 0, window/2, 0, 0, window/2)
		x = b.node("Pad", "stft.padded", []string{source, pads}, onnx.Text("mode", "reflect"))
	}
	x = b.convolve("Conv", "stft.wide", x, convolution{weight: fixed(waves(nil), 2*bins, 1, window), typ: models.Float32, stride: hop})
	x = b.counted(x, columnsOf, models.Float32)
	return b.cast("stft", x, b.float)
}

// waves returns the windowed cosine of each bin, and its negative sine, times gains.
func waves(gain func(bin int) float64) []float64 {
	values := make([]float64, 0, 2*bins*window)
	for k := range 2 * bins {
		for n := range window {
			sin, cos := math.Sincos(2 * math.Pi * float64(k%bins*n) / window)
			v := cos
			if k >= bins {
				v = -sin
			}
			v *= models.Hann(n)
			if gain != nil {
				v *= gain(k % bins)
			}
			values = append(values, v)
		}
	}
	return values
}

// stage is a step of the stack: it multiplies the length and halves the channels.
type stage struct {
	from                     int // columns of its input per frame
	rate, size               int // of the transposed convolution
	sourceStride, sourceSize int // of the source's convolution
	block                    int // size in the source's block
}

// stack adds the network from the spectrogram and the transform of the source to the log amplitudes
// and the phases of the sound, [B,2*bins,120*T+1], in float32.
func (b *vocoder) stack(mel, source string) string {
	channels := b.Channels
	c := b.weights("conv_pre", channels, channels, b.mel, 7).same()
	x := b.convolve("Conv", "pre", b.cast("mel.float", mel, b.float), c)
	for i, s := range []stage{{1, 8, 16, 15, 30, 7}, {8, 5, 11, 3, 6, 7}, {40, 3, 7, 1, 1, 11}} {
		x = b.stage(i, s, x, source, channels/2)
		channels /= 2
	}
	x = b.node("LeakyRelu", "post.relu", []string{x}, onnx.Real("alpha", 0.01))
	x = b.counted(x, columnsOf, b.float)
	c = b.weights("conv_post", 2*bins, 2*bins, channels, 7).same()
	c.typ = models.Float32
	return b.convolve("Conv", "spectrum", b.cast("post", x, models.Float32), c)
}

func (b *vocoder) stage(i int, s stage, x, source string, out int) string {
	n := strconv.Itoa(i)
	x = b.node("LeakyRelu", "ups."+n+".relu", []string{x}, onnx.Real("alpha", 0.1))
	x = b.counted(x, s.from, b.float)
	up := b.weights("ups."+n, out, 2*out, out, s.size)
	up.stride, up.pad = s.rate, (s.size-s.rate)/2
	x = b.convolve("ConvTranspose", "ups."+n, x, up)
	if s.sourceStride == 1 { // the transform has one column more
		x = b.node("Pad", "ups."+n+".padded", []string{x, b.constant("ups.pads", 0, 0, 1, 0, 0, 0)}, onnx.Text("mode", "reflect"))
	}
	name := "source_downs." + n
	down := b.weights(name, out, out, 2*bins, s.sourceSize)
	down.weight = tensor("hift."+name+".weight", out, 2*bins, s.sourceSize)
	down.stride, down.pad = s.sourceStride, s.sourceStride/2
	y := b.convolve("Conv", name, source, down)
	x = b.node("Add", "stage."+n, []string{x, b.block("source_resblocks."+n, y, out, s.block, s.from*s.rate)})
	parts := make([]string, 3)
	for j, size := range []int{3, 7, 11} {
		parts[j] = b.block("resblocks."+strconv.Itoa(3*i+j), x, out, size, s.from*s.rate)
	}
	sum := b.node("Add", "stage."+n+".pair", parts[:2])
	sum = b.node("Add", "stage."+n+".sum", []string{sum, parts[2]})
	return b.node("Mul", "stage."+n+".mean", []string{sum, b.formula("third", fixed([]float64{1. / 3}, 1))})
}

// block adds a residual block: three times two convolutions, a snake before each,
// snake(x) = x + sin(a*x)^2/a with a per channel (arXiv:2006.08195). The convolution
// before a snake computes u = a*x, and the one after it takes u + sin(u)^2, so a is part
// of their weights.
func (b *vocoder) block(name, x string, channels, size, rate int) string {
	for j, dilation := range []int{1, 3, 5} {
		p, n := name+"."+strconv.Itoa(j)+".", strconv.Itoa(j)
		alpha := func(which string) *Formula { return tensor("hift."+name+".activations"+which+"."+n+".alpha", channels) }
		first, second := alpha("1"), alpha("2")
		along := func(f *Formula) *Formula { return shaped(f, 1, channels, 1) }

		c := b.weights(name+".convs1."+n, channels, channels, channels, size)
		c.weight = over(times(c.weight, shaped(second, channels, 1, 1)), along(first))
		c.bias, c.dilation = times(c.bias, second), dilation
		u := b.node("Mul", p+"scaled", []string{x, b.formula(p+"alpha", along(first))})
		u = b.counted(u, rate, b.float)
		u = b.convolve("Conv", p+"conv1", b.snake(p+"snake1", u), c.same())
		u = b.counted(u, rate, b.float)

		c = b.weights(name+".convs2."+n, channels, channels, channels, size)
		c.weight = over(c.weight, along(second))
		u = b.convolve("Conv", p+"conv2", b.snake(p+"snake2", u), c.same())
		x = b.node("Add", p+"sum", []string{x, u})
	}
	return x
}

// snake returns u + sin(u)^2.
func (b *vocoder) snake(name, u string) string {
	sin := b.node("Sin", name+".sin", []string{u})
	return b.node("Add", name, []string{u, b.node("Mul", name+".square", []string{sin, sin})})
}

// inverse adds the inverse transform, [B,480*T], limited to 0.99.
func (b *vocoder) inverse(spectrum string) string {
	size := b.node("Exp", "istft.exp", []string{b.slice("istft.logs", spectrum, 1, 0, bins)})
	size = b.node("Min", "istft.size", []string{size, b.number(100)})
	phase := b.node("Sin", "istft.phase", []string{b.slice("istft.raw", spectrum, 1, bins, end)})
	part := func(f string) string {
		return b.node("Mul", "istft."+f, []string{size, b.node(f, "istft."+f+".phase", []string{phase})})
	}
	x := b.node("Concat", "istft.parts", []string{part("Cos"), part("Sin")}, onnx.Int("axis", 1))
	x = b.counted(x, columnsOf, models.Float32)
	filters := waves(func(bin int) float64 {
		if bin%(window/2) == 0 {
			return 1. / window / models.WindowsCover
		}
		return 2. / window / models.WindowsCover
	})
	x = b.convolve("ConvTranspose", "istft.padded", x, convolution{
		weight: fixed(filters, 2*bins, 1, window), typ: models.Float32, stride: hop, pad: window / 2,
	})
	x = b.node("Reshape", "istft.line", []string{x, b.constant("line", 0, -1)})
	first, last := models.EdgeGains()
	if b.tail {
		x = b.node("Mul", "istft", []string{x, "edges"})
	} else {
		x = b.node("Concat", "istft", []string{
			b.node("Mul", "istft.first", []string{b.slice("istft.first.raw", x, 1, 0, hop), b.numbers("istft.first.gain", first, hop)}),
			b.slice("istft.middle", x, 1, hop, -hop),
			b.node("Mul", "istft.last", []string{b.slice("istft.last.raw", x, 1, -hop, end), b.numbers("istft.last.gain", last, hop)}),
		}, onnx.Int("axis", 1))
	}
	name := "wave"
	if !b.options.Check {
		name = "wave.new"
	}
	return b.node("Clip", name, []string{x, b.numbers("clip.low", []float64{-0.99}), b.numbers("clip.high", []float64{0.99})})
}

// join fades from the end of the last run's sound to the new sound.
func (b *vocoder) join(x string) {
	if b.options.Check {
		return
	}
	in, out := make([]float64, overlap), make([]float64, overlap)
	for i := range overlap { // a Hamming window
		v := func(i int) float64 { return 0.54 - 0.46*math.Cos(2*math.Pi*float64(i)/(2*overlap-1)) }
		in[i], out[i] = v(i), v(overlap+i)
	}
	first, rest := b.slice("wave.first", x, 1, 0, overlap), b.slice("wave.rest", x, 1, overlap, end)
	faded := b.node("Add", "wave.faded", []string{
		b.node("Mul", "wave.in", []string{first, b.numbers("fade.in", in, overlap)}),
		b.node("Mul", "wave.out", []string{"past.wave", b.numbers("fade.out", out, overlap)}),
	})
	first = b.node("Where", "wave.start", []string{"resumed.bool", faded, first})
	b.node("Concat", "wave", []string{first, rest}, onnx.Int("axis", 1))
	b.keep("present.wave", "wave", 1, -overlap)
}
