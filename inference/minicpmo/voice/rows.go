package voice

import (
	"slices"
	"strconv"

	networks "touchline/inference/internal/device"
	"touchline/inference/internal/ort"
	"touchline/inference/minicpmo/voice/tts"
	"touchline/models"
)

// cached returns the number of rows of the encoder's caches at a rate, and the number of new rows of a window.
func (w *Wave) cached(rate string) (cached, run int) {
	if rate == "25" {
		return (w.prompt + keptPrompt) / 2, chunkFrames / 2
	}
	return w.prompt + keptPrompt, chunkFrames
}

// blocks returns the encoder's blocks at a rate.
func (w *Wave) blocks(rate string) int {
	if rate == "25" {
		return w.dims.Flow.Blocks
	}
	return w.dims.Flow.UpBlocks
}

// rates of the encoder's two parts.
func rates() []string { return []string{"25", "50"} }

// waveRows lists the rows of all networks, which are allocated together.
type waveRows struct {
	*Wave

	ports []networks.Port
	to    []map[string]*networks.Rows
	keeps []string
}

func (l *waveRows) row(rows map[string]*networks.Rows, host bool, per int, name string, t models.Type, shape ...int) {
	p := networks.Port{Name: name, Type: t, Host: host, Per: int64(per)}
	for _, n := range shape {
		p.Shape = append(p.Shape, int64(n))
	}
	l.ports, l.to = append(l.ports, p), append(l.to, rows)
}

func (l *waveRows) input(name string, t models.Type, shape ...int) {
	l.row(l.in, true, 1, name, t, shape...)
}

// ring is a cache that is written in place.
func (l *waveRows) ring(name string, shape ...int) {
	l.row(l.in, false, 2, "past."+name, l.float, shape...)
	l.rings = append(l.rings, name)
}

// keep is a cache that is written elsewhere.
func (l *waveRows) keep(name string, t models.Type, shape ...int) {
	l.row(l.in, false, 1, "past."+name, t, shape...)
	l.row(l.out, false, 1, "present."+name, t, shape...)
	l.keeps = append(l.keeps, name)
}

func (l *waveRows) encoder() {
	f := l.dims.Flow
	l.input("codes", models.Int64, tts.WindowCodes)
	l.input("coded", l.float, tts.WindowCodes, 1)
	l.keep("ahead", l.float, 2, f.Hidden)
	l.keep("up", l.float, 4, f.Hidden)
	for _, rate := range rates() {
		cached, run := l.cached(rate)
		l.input("mask."+rate, l.float, 1, 1, cached+run)
		l.input("keep."+rate, models.Int64, cached)
		for i := range l.blocks(rate) {
			l.keep(rate+"."+strconv.Itoa(i)+".key", l.float, cached, f.Hidden)
			l.keep(rate+"."+strconv.Itoa(i)+".value", l.float, cached, f.Hidden)
		}
	}
	l.row(l.out, false, 1, "mu", l.float, chunkFrames, f.Mel)
}

func (l *waveRows) flow() {
	f, d := l.dims.Flow, l.dims.Flow.DiT
	l.input("noise", models.Float32, chunkFrames, f.Mel)
	l.row(l.in, false, 1, "speaker", l.float, 1, f.Speaker)
	l.row(l.in, true, 2, "mask", l.float, 1, 1, l.rows())
	l.row(l.in, true, 2, "write", models.Int64)
	l.row(l.in, true, 2, "conv_write", models.Int64)
	l.row(l.in, true, 2, "conv_rows", models.Int64, chunkFrames, 3)
	attention, convolution := ringNames(d)
	for _, name := range attention {
		l.ring(name, l.rows(), d.Heads*d.HeadDim)
	}
	for _, name := range convolution {
		l.ring(name, convRows, d.Hidden)
	}
	l.row(l.out, false, 1, "mel", models.Float32, chunkFrames, f.Mel)
}

func (l *waveRows) vocoder() {
	for _, t := range []int{chunkFrames, chunkFrames + models.VocoderKept} {
		l.input("noise_rows."+strconv.Itoa(t), models.Int64, 8*t)
		l.row(l.out, true, 1, "wave."+strconv.Itoa(t), models.Float32, models.FrameSamples*t)
	}
	l.input("resumed", models.Int64, 1)
	l.keep("mel", models.Float32, models.VocoderKept, l.dims.Flow.Mel)
	l.keep("source", models.Float32, 1, overlap)
	l.keep("wave", models.Float32, overlap)
}

// allocate allocates the rows of all slots.
func (w *Wave) allocate() {
	l := &waveRows{Wave: w}
	l.encoder()
	l.flow()
	l.vocoder()
	for i, r := range w.AllRows("turns", l.ports, w.slots.Slots) {
		l.to[i][l.ports[i].Name] = r
	}
	for i, name := range w.rings {
		w.rings[i], w.out["present."+name] = "past."+name, w.in["past."+name]
	}
	for _, name := range l.keeps {
		w.kept[0], w.kept[1] = append(w.kept[0], w.out["present."+name]), append(w.kept[1], w.in["past."+name])
	}
	for _, name := range w.state() {
		w.begun = append(w.begun, w.in[name])
	}
}

// ringNames returns the names of the flow's rings of keys and values, and of its convolutions.
func ringNames(d models.DiT) (attention, convolution []string) {
	for s := range d.Steps {
		for i := range d.Layers {
			p := strconv.Itoa(s) + "." + strconv.Itoa(i) + "."
			attention, convolution = append(attention, p+"key", p+"value"), append(convolution, p+"conv1", p+"conv2")
		}
	}
	return attention, convolution
}

// SlotBytes returns the memory of a turn.
func (w *Wave) SlotBytes() int64 {
	rows := map[*networks.Rows]bool{}
	var n int64
	for _, ports := range []map[string]*networks.Rows{w.in, w.out} {
		for _, r := range ports {
			if !rows[r] {
				rows[r] = true
				n += r.Width()
			}
		}
	}
	return n
}

// connect makes the networks.
func (w *Wave) connect() error {
	for _, rate := range rates() {
		cached, run := w.cached(rate)
		places := models.FlowDistances(w.dims.Flow, rate == "50", run, cached)
		if err := w.share("distances."+rate, ort.Bytes(places), models.Int64, int64(run), int64(cached+run)); err != nil {
			return err
		}
	}
	if err := w.share("noise", ort.Bytes(w.noise.Vocoder), models.Float32,
		int64(len(w.noise.Vocoder)/models.NoiseColumns), models.NoiseColumns); err != nil {
		return err
	}
	for from, name := range map[int]string{models.VocoderKept: "frames.first", 0: "frames.later"} {
		if err := w.share(name, ort.Bytes(counted(from, models.VocoderKept+chunkFrames)), models.Int64,
			int64(models.VocoderKept+chunkFrames-from)); err != nil {
			return err
		}
	}
	network := func(s *ort.Session, graphs int, o networks.NetworkOptions) *networks.Network {
		o.Session, o.Layout, o.Captured, o.Graphs = s, w.slots, w.slots.Slots, graphs
		return w.NewNetwork(o)
	}
	in, out := w.pick("codes", "coded", "mask.25", "mask.50", "keep.25", "keep.50"), map[string]*networks.Rows{"mu": w.out["mu"]}
	w.caches(in, out, w.encoderCaches()...)
	w.encode = network(w.encoder, 0, networks.NetworkOptions{
		Inputs: in, Outputs: out,
		Shared: map[string]*ort.Tensor{"distances.25": w.shared["distances.25"], "distances.50": w.shared["distances.50"]},
	})
	in, out = w.pick("noise", "speaker", "mask", "write", "conv_write", "conv_rows"), map[string]*networks.Rows{"mel": w.out["mel"]}
	in["mu"] = w.out["mu"]
	w.caches(in, out, w.flowCaches()...)
	w.transform = network(w.flow, 0, networks.NetworkOptions{Inputs: in, Outputs: out})
	vocoder := func(frames int, name string, graphs int) *networks.Network {
		in, out := w.pick("resumed"), map[string]*networks.Rows{"wave": w.out["wave."+strconv.Itoa(frames)]}
		in["mel"], in["noise_rows"] = w.out["mel"], w.in["noise_rows."+strconv.Itoa(frames)]
		w.caches(in, out, "mel", "source", "wave")
		return network(w.vocoder, graphs, networks.NetworkOptions{
			Inputs: in, Outputs: out, Shared: map[string]*ort.Tensor{"noise": w.shared["noise"], "frames": w.shared[name]},
		})
	}
	w.first = vocoder(chunkFrames, "frames.first", 0)
	w.later = vocoder(chunkFrames+models.VocoderKept, "frames.later", len(w.slots.Ranges(w.slots.Slots)))
	return w.Device().Synchronize()
}

// share allocates an input that never changes.
func (w *Wave) share(name string, b []byte, t models.Type, shape ...int64) error {
	m, tensor, err := w.Tensor(name, t, shape...)
	if err != nil {
		return err
	}
	w.shared[name] = tensor
	return w.Device().CopyIn(m.At(0), b)
}

// pick returns some inputs.
func (w *Wave) pick(names ...string) map[string]*networks.Rows {
	out := map[string]*networks.Rows{}
	for _, n := range names {
		out[n] = w.in[n]
	}
	return out
}

// caches adds inputs past.x and outputs present.x.
func (w *Wave) caches(in, out map[string]*networks.Rows, names ...string) {
	for _, n := range names {
		in["past."+n], out["present."+n] = w.in["past."+n], w.out["present."+n]
	}
}

func (w *Wave) encoderCaches() []string {
	names := []string{"ahead", "up"}
	for _, rate := range rates() {
		for i := range w.blocks(rate) {
			names = append(names, rate+"."+strconv.Itoa(i)+".key", rate+"."+strconv.Itoa(i)+".value")
		}
	}
	return names
}

func (w *Wave) flowCaches() []string { return slices.Concat(ringNames(w.dims.Flow.DiT)) }
