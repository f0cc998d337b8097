package configs

import (
	"cmp"
	"fmt"

	"touchline/agent/bot"
	"touchline/agent/worker"
)

// Bot returns the settings of one commentator.
func (c Config) Bot() bot.Settings {
	return bot.Settings{
		Agent: c.Agent.Config, Media: c.Media, Pacing: c.Pacing, LiveKit: c.Agent.LiveKit, Control: c.Agent.Control,
		Engine: c.Inference.Config, Remote: c.Inference.Remote, MiniCPM: c.Inference.MiniCPM, Sight: c.Inference.Sight,
		Auto:    c.Inference.Auto,
		Sources: c.Sources, WHEP: c.Agent.Console.WHEP, Transcription: c.Agent.Console.Transcription, ICE: c.Agent.Console.ICE,
		Alert: c.Agent.Alert, Regions: c.Agent.Regions,
		Profiles: c.Profiles, Presets: live(), Preset: c.Preset, Comments: c.Agent.History.Comments,
	}
}

// Outputs returns the settings of the outputs that the commentators of a process share.
func (c Config) Outputs() bot.OutputSettings {
	return bot.OutputSettings{
		State: c.Agent.State, History: c.Agent.History, Webhook: c.Agent.Webhook, MQTT: c.Agent.MQTT, JPEGQuality: c.Media.JPEGQuality,
		APIKey: c.Agent.LiveKit.APIKey, APISecret: c.Agent.LiveKit.APISecret,
	}
}

// Job returns the settings of the commentator of a job. An error names the wrong
// setting in the job's metadata.
func (c Config) Job(job worker.Job) (bot.Settings, error) {
	lk := &c.Agent.LiveKit
	lk.URL, lk.Token, lk.Room, lk.Identity, lk.Name = job.URL, "", job.Room, job.Identity, job.Name
	m := job.Metadata
	c.Agent.Profile = cmp.Or(m.Profile, c.Agent.Profile)
	c.Agent.Instruction = cmp.Or(m.Instruction, c.Agent.Instruction)
	if m.Track.Identity != "" || m.Track.Source != "" {
		c.Media.Watch = m.Track
	}
	c.Media.Watch.Identity = cmp.Or(job.Participant, c.Media.Watch.Identity)
	if m.Speech != nil {
		c.Inference.Voice.Enabled = *m.Speech
	}
	c.Inference.Voice.Language = cmp.Or(m.Language, c.Inference.Voice.Language)
	c.Inference.Engine = cmp.Or(m.Engine, c.Inference.Engine)
	if err := c.Validate(); err != nil {
		return bot.Settings{}, fmt.Errorf("dispatch metadata: %w", err)
	}
	return c.Bot(), nil
}
