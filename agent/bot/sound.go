package bot

import (
	"github.com/prometheus/client_golang/prometheus"

	"touchline/agent/room"
	"touchline/media"
	"touchline/media/sound"
)

// cameraSound is the way of the camera's sound through the bot; both are nil
// when it is switched off.
type cameraSound struct {
	line     *sound.Line
	receiver *sound.Receiver
}

func newCameraSound(cfg Settings) (c cameraSound, err error) {
	if !cfg.Media.Relay || !cfg.Media.CameraSound {
		return c, nil // without a delayed picture nothing belongs to delayed sound
	}
	c.line = sound.NewLine(max(cfg.Pacing.MaxDelay, cfg.Pacing.FixedDelay), cfg.Media.DuckDB)
	c.receiver, err = sound.NewReceiver(c.line)
	return c, err
}

// sink is where the room brings the packets.
func (c cameraSound) sink() room.SoundSink {
	if c.receiver == nil {
		return nil
	}
	return c.receiver
}

// Sound tells how the camera's sound fares; zero when it is switched off.
func (b *Bot) Sound() sound.Stats {
	if b.camera.line == nil {
		return sound.Stats{}
	}
	return b.camera.line.Stats()
}

// soundMetrics tell how the camera's sound fares.
type soundMetrics struct{ b *Bot }

// Describe leaves it to Collect: the metrics are checked as they come.
func (m soundMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. There is nothing before sound came.
func (m soundMetrics) Collect(ch chan<- prometheus.Metric) {
	c := m.b.camera
	if c.line == nil || !c.line.Heard() {
		return
	}
	value := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names []string
		if len(labels) > 0 {
			names, labels = labels[:1], labels[1:]
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("touchline_sound_"+name, help, names, nil), kind, v, labels...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	l, r, p := c.line.Stats(), c.receiver.Stats(), m.b.player.Stats()
	value(gauge, "offset_seconds", "By how much the camera's sound is heard later than its picture is shown.", l.Offset.Seconds())
	value(gauge, "delay_seconds", "How far the camera's sound is behind.", l.Delay.Seconds())
	const moves = "How often the sound's delay followed the picture's: in silence, or by a jump where none came."
	value(counter, "moves_total", moves, float64(l.Moves), "how", "silence")
	value(counter, "moves_total", moves, float64(l.Jumps), "how", "jump")
	value(counter, "late_seconds_total", "Sound that came too late to be heard.",
		media.TicksToDuration(int64(l.Late), sound.Rate).Seconds())
	const packets = "Packets of the camera's sound: received, lost on the way, not decodable, sent."
	value(counter, "packets_total", packets, float64(r.Packets), "what", "received")
	value(counter, "packets_total", packets, float64(r.Lost), "what", "lost")
	value(counter, "packets_total", packets, float64(r.Bad), "what", "bad")
	value(counter, "packets_total", packets, float64(p.Packets), "what", "sent")
}
