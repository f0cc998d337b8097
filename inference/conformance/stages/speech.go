package stages

import (
	"encoding/json"
	"errors"
	"fmt"

	"touchline/inference/vad"
)

// Speech runs the network of a vad.Model on recorded streams, one frame of each in turn. near gets each probability with the
// recorded one of the network's own package; clip returns the sound of a name.
func Speech(
	g *vad.Model, raw []byte, clip func(name string) ([]float32, error), near func(got, want float64, name string, frame int),
) (err error) {
	var golden struct {
		Clips []struct {
			Clip  string
			Probs []float64
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		return err
	}
	detectors, sounds := make([]vad.Detector, len(golden.Clips)), make([][]float32, len(golden.Clips))
	frames := 0
	for i, c := range golden.Clips {
		if sounds[i], err = clip(c.Clip); err != nil {
			return err
		}
		if len(sounds[i]) <= (len(c.Probs)-1)*vad.FrameSamples {
			return fmt.Errorf("%s: expected sound of %d frames, got %d samples", c.Clip, len(c.Probs), len(sounds[i]))
		}
		if detectors[i], err = g.Detector(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, detectors[i].Close()) }()
		frames = max(frames, len(c.Probs))
	}
	for at := range frames {
		for i, c := range golden.Clips {
			if at >= len(c.Probs) {
				continue
			}
			frame := make([]float32, vad.FrameSamples)
			copy(frame, sounds[i][at*vad.FrameSamples:])
			p, err := detectors[i].Detect(frame)
			if err != nil {
				return fmt.Errorf("%s: frame %d: %w", c.Clip, at, err)
			}
			near(p, c.Probs[at], c.Clip, at)
		}
	}
	return nil
}
