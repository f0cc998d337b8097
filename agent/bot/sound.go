package bot

import (
	"github.com/prometheus/client_golang/prometheus"

	"touchline/agent/room"
	"touchline/internal/metrics"
	"touchline/media"
	"touchline/media/sound"
)

// cameraSound is the path of the camera's sound through the bot; both fields are
// nil when it is off.
type cameraSound struct {
	line     *sound.Line
	receiver *sound.Receiver
}

func newCameraSound(cfg Settings) (c cameraSound, err error) {
	if !cfg.Media.Relay || !cfg.Media.CameraSound {
		return c, nil // delayed sound belongs to a delayed picture
	}
	c.line = sound.NewLine(max(cfg.Pacing.MaxDelay, cfg.Pacing.FixedDelay), cfg.Media.DuckDB)
	c.receiver, err = sound.NewReceiver(c.line, sound.Rate)
	return c, err
}

// sink returns the receiver of the camera's packets, or nil.
func (c cameraSound) sink() room.SoundSink {
	if c.receiver == nil {
		return nil
	}
	return c.receiver
}

// Sound returns the statistics of the camera's sound; zero when it is off.
func (b *Bot) Sound() sound.Stats {
	if b.camera.line == nil {
		return sound.Stats{}
	}
	return b.camera.line.Stats()
}

// collectSound sends the metrics of the camera's sound, none before the first sound.
func (b *Bot) collectSound(ch chan<- prometheus.Metric) {
	c := b.camera
	if c.line == nil || !c.line.Heard() {
		return
	}
	out := metrics.Writer{Out: ch, Prefix: "touchline_sound_"}
	l, r, p := c.line.Stats(), c.receiver.Stats(), b.player.Stats()
	out.Gauge("offset_seconds", "Time from the camera's picture to its sound; negative when the sound is first.", l.Offset.Seconds())
	out.Gauge("delay_seconds", "Delay of the camera's sound.", l.Delay.Seconds())
	const moves = "Changes of the sound's delay to follow the picture: in silence, or by a jump where there was none."
	out.Counter("moves_total", moves, float64(l.Moves), "how", "silence")
	out.Counter("moves_total", moves, float64(l.Jumps), "how", "jump")
	out.Counter("late_seconds_total", "Sound that arrived too late to be played.",
		media.TicksToDuration(int64(l.Late), sound.Rate).Seconds())
	const packets = "Packets of the camera's sound: received, lost on the way, not decodable, sent."
	out.Counter("packets_total", packets, float64(r.Packets), "what", "received")
	out.Counter("packets_total", packets, float64(r.Lost), "what", "lost")
	out.Counter("packets_total", packets, float64(r.Bad), "what", "bad")
	out.Counter("packets_total", packets, float64(p.Packets), "what", "sent")
}
