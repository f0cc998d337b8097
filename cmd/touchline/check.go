package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"touchline/inference/voice"
	"touchline/media/codec"
)

type checkCmd struct{}

// Run prints the settings in force, what they mean, and what is missing.
func (checkCmd) Run(_ context.Context, a *app) error {
	fmt.Println("# settings in force")
	if err := a.cfg.Print(os.Stdout); err != nil {
		return fmt.Errorf("print the settings: %w", err)
	}
	fmt.Println("\n# what they mean")
	for _, line := range a.cfg.Explain() {
		fmt.Println(line)
	}
	fmt.Println("\n# this machine")
	missing := 0
	tell := func(what string, err error, ok string) {
		if err != nil {
			missing++
			fmt.Printf("missing  %s: %v\n", what, err)
			return
		}
		fmt.Printf("ok       %s: %s\n", what, ok)
	}
	path, err := codec.Find("")
	tell("codec program", err, path)
	synth, err := voice.New(a.cfg.Inference.Voice, a.log)
	if err == nil {
		err = synth.Check(a.cfg.Inference.Voice.Language)
	}
	tell("voice", err, "speaks "+a.cfg.Inference.Voice.Language)
	path, err = exec.LookPath("ffmpeg")
	if err != nil {
		fmt.Println("optional ffmpeg: not found; only `touchline demo --source` needs it: apt-get install ffmpeg")
	} else {
		tell("ffmpeg", nil, path)
	}
	if lk := a.cfg.Agent.LiveKit; lk.APIKey == "" && lk.Token == "" {
		fmt.Println("optional LiveKit keys: none; `touchline join` needs LIVEKIT_API_KEY and LIVEKIT_API_SECRET, or a token")
	}
	if missing > 0 {
		return fmt.Errorf("expected nothing to be missing, %d found above", missing)
	}
	return nil
}
