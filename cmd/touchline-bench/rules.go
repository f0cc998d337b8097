package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"touchline/agent"
	"touchline/agent/alert"
	"touchline/configs"
	"touchline/internal/e2e/stage"
)

const (
	// rulesMost bounds what rules cost the commentary, percent of its cadence.
	rulesMost = 5
	// rulesThinking is the time of the model server for each answer.
	rulesThinking = 150 * time.Millisecond
)

// measureRules compares the cadence of the commentary, as text, with 16 alert rules and without, for a model server that takes one
// request at a time and for one that takes four, and for the built-in model if there is a bundle.
func measureRules(ctx context.Context, length time.Duration, bundle string, log zerolog.Logger) ([]row, error) {
	engines := []commentator{serverOf(1), serverOf(4)}
	if bundle != "" {
		engines = []commentator{builtIn(bundle)}
	}
	var rows []row
	for _, engine := range engines {
		var per [2]float64 // cycles a minute
		for i, rules := range []int{0, alert.MaxRules} {
			var err error
			if per[i], err = cadence(ctx, engine, rules, length, log); err != nil {
				return rows, fmt.Errorf("%d rules, %s: %w", rules, engine.name, err)
			}
		}
		rows = append(rows,
			note(fmt.Sprintf("%s: cycles a minute without rules, with %d", engine.name, alert.MaxRules),
				fmt.Sprintf("%.1f, %.1f", per[0], per[1])),
			atMost(fmt.Sprintf("%s: cost of %d rules", engine.name, alert.MaxRules), 100*(1-per[1]/per[0]), rulesMost, "%"))
	}
	return rows, nil
}

// commentator is an engine whose cadence is measured.
type commentator struct {
	name string
	// start changes the settings to the engine.
	start func(*configs.Config) (stop func())
}

// serverOf is a model server that takes some requests at a time.
func serverOf(parallel int) commentator {
	return commentator{fmt.Sprintf("%d request(s) at once", parallel), func(cfg *configs.Config) func() {
		server := newModelServer(1, longText, rulesThinking, rulesThinking)
		cfg.Inference.Engine = "remote"
		cfg.Inference.Remote.URL = server.URL + "/v1"
		cfg.Inference.Remote.Parallel = parallel
		return func() { server.CloseClientConnections(); server.close() }
	}}
}

// builtInTokens is the length of the built-in model's comments: random weights seldom end one.
const builtInTokens = 40

// builtIn is the built-in model.
func builtIn(bundle string) commentator {
	return commentator{"the built-in model", func(cfg *configs.Config) func() {
		cfg.Inference.Engine = "minicpmo"
		cfg.Inference.MiniCPM.Path = bundle
		cfg.Inference.MaxTokens = builtInTokens
		return func() {}
	}}
}

// loading is the longest time to the first comments.
const loading = 5 * time.Minute

// cadence returns the cycles a minute of a bot with a number of rules.
func cadence(ctx context.Context, engine commentator, rules int, length time.Duration, log zerolog.Logger) (float64, error) {
	cfg := configs.Default()
	defer engine.start(&cfg)()
	cfg.Inference.Voice.Enabled = false
	for i := range rules {
		cfg.Agent.Alert.Rules = append(cfg.Agent.Alert.Rules, alert.Rule{When: fmt.Sprintf("player number %d scores a goal", i+1)})
	}
	s, err := stage.New(ctx, stage.Options{Config: &cfg, Seed: 4, Log: log})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	shown := func() (records []agent.Record) {
		for _, r := range s.Reader.Records() {
			if r.Outcome == agent.OutcomeShown {
				records = append(records, r)
			}
		}
		return records
	}
	if _, err := stage.Until(ctx, loading, "the first comments", func() bool { return len(shown()) > unsettled }); err != nil {
		return 0, err
	}
	before, began := len(shown()), time.Now()
	if err := stage.Wait(ctx, length); err != nil {
		return 0, err
	}
	answered := func(l agent.RawLook) bool { return l.Kind == agent.LookRules && l.Error == "" }
	if rules > 0 && !slices.ContainsFunc(s.Bot.Face().Looks.Looks(), answered) {
		return 0, errors.New("expected looks with rules, got none")
	}
	return float64(len(shown())-before) / time.Since(began).Minutes(), s.Errors()
}
