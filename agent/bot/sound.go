package bot

import (
	"github.com/prometheus/client_golang/prometheus"

	"touchline/agent/room/watch"
	"touchline/internal/metrics"
	"touchline/internal/ticks"
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
func (c cameraSound) sink() watch.SoundSink {
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

// collect sends the metrics of the room.
func (b *Bot) collect(ch chan<- prometheus.Metric) {
	if b.sources != nil {
		out := metrics.Writer{Out: ch}
		out.Counter("touchline_source_program_starts_total", "Starts of ffmpeg and ffprobe for the room's sources.", float64(b.sources.Starts()))
	}
	out := metrics.Writer{Out: ch, Prefix: "touchline_control_"}
	n := b.control.Refused()
	const refused = "Requests of participants without an effect: beyond a limit, without the right, dropped without an answer (flood), or " +
		"perhaps from before a standstill of the process."
	out.Counter("refused_total", refused, float64(n.Limited), "what", "limit")
	out.Counter("refused_total", refused, float64(n.Denied), "what", "right")
	out.Counter("refused_total", refused, float64(n.Dropped), "what", "flood")
	out.Counter("refused_total", refused, float64(n.Stale), "what", "standstill")
	removed, failed := b.Room.Removals()
	const removals = "Participants whose link had ended: removed from the room, or not, as the server refused it or did not answer."
	room := metrics.Writer{Out: ch, Prefix: "touchline_room_"}
	room.Counter("removals_total", removals, float64(removed), "what", "removed")
	room.Counter("removals_total", removals, float64(failed), "what", "failed")
	b.collectSound(ch)
	b.collectHearing(ch)
}

// collectHearing collects the metrics of recognized participants, none without a recognizer.
func (b *Bot) collectHearing(ch chan<- prometheus.Metric) {
	if b.ears == nil {
		return
	}
	out, s := metrics.Writer{Out: ch, Prefix: "touchline_hearing_"}, b.ears.Stats()
	out.Gauge("microphones", "Microphones that are received.", float64(s.Microphones))
	out.Gauge("speakers", "Microphones that are recognized: those of people that may instruct first, then the loudest.", float64(s.Speakers))
	out.Gauge("left_out", "Microphones that are not received, as there are too many.", float64(s.Left))
	out.Gauge("lag_seconds", "Time from the end of speech to its text, the 95th percentile of the last 100.", s.Lag95.Seconds())
	out.Counter("utterances_total", "Utterances with a text.", float64(s.Utterances))
	const orders = "Spoken orders: those that acted and those that could not."
	out.Counter("orders_total", orders, float64(s.Orders), "what", "acted")
	out.Counter("orders_total", orders, float64(s.Refused), "what", "refused")
	const lost = "Utterances without a text: echoes of the voice, and those that the recognizer failed at."
	out.Counter("lost_total", lost, float64(s.Echoes), "what", "echo")
	out.Counter("lost_total", lost, float64(s.Failed), "what", "failed")
	const unheard = "Packets of microphones that were not heard: others were louder, sound came too fast, or far too many packets."
	out.Counter("unheard_total", unheard, float64(s.Skipped), "what", "quieter")
	out.Counter("unheard_total", unheard, float64(s.Dropped), "what", "too_fast")
	out.Counter("unheard_total", unheard, float64(b.Room.SoundLost()), "what", "flood")
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
		ticks.Duration(int64(l.Late), sound.Rate).Seconds())
	const packets = "Packets of the camera's sound: received, lost on the way, not decodable, sent."
	out.Counter("packets_total", packets, float64(r.Packets), "what", "received")
	out.Counter("packets_total", packets, float64(r.Lost), "what", "lost")
	out.Counter("packets_total", packets, float64(r.Bad), "what", "bad")
	out.Counter("packets_total", packets, float64(p.Packets), "what", "sent")
}
