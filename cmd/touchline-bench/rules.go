package main

import (
	"context"
	"errors"
	"fmt"
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
// request at a time and for one that takes four.
func measureRules(ctx context.Context, length time.Duration, log zerolog.Logger) ([]row, error) {
	var rows []row
	for _, parallel := range []int{1, 4} {
		var per [2]float64 // cycles a minute
		for i, rules := range []int{0, alert.MaxRules} {
			var err error
			if per[i], err = cadence(ctx, parallel, rules, length, log); err != nil {
				return rows, fmt.Errorf("%d rules, %d requests at once: %w", rules, parallel, err)
			}
		}
		rows = append(rows,
			note(fmt.Sprintf("%d request(s) at once: cycles a minute without rules, with %d", parallel, alert.MaxRules),
				fmt.Sprintf("%.1f, %.1f", per[0], per[1])),
			atMost(fmt.Sprintf("%d request(s) at once: cost of %d rules", parallel, alert.MaxRules), 100*(1-per[1]/per[0]), rulesMost, "%"))
	}
	return rows, nil
}

// cadence returns the cycles a minute of a bot with a number of rules.
func cadence(ctx context.Context, parallel, rules int, length time.Duration, log zerolog.Logger) (float64, error) {
	server := newModelServer(1, longText, rulesThinking, rulesThinking)
	defer server.close()
	cfg := configs.Default()
	cfg.Inference.Engine = "remote"
	cfg.Inference.Remote.URL = server.URL + "/v1"
	cfg.Inference.Remote.Parallel = parallel
	cfg.Inference.Voice.Enabled = false
	for i := range rules {
		cfg.Agent.Alert.Rules = append(cfg.Agent.Alert.Rules, alert.Rule{When: fmt.Sprintf("player number %d scores a goal", i+1)})
	}
	s, err := stage.New(ctx, stage.Options{Config: &cfg, Seed: 4, Log: log})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	defer server.CloseClientConnections()
	shown := func() (records []agent.Record) {
		for _, r := range s.Reader.Records() {
			if r.Outcome == agent.OutcomeShown {
				records = append(records, r)
			}
		}
		return records
	}
	if _, err := stage.Until(ctx, 60*time.Second, "the first comments", func() bool { return len(shown()) > unsettled }); err != nil {
		return 0, err
	}
	before, began := len(shown()), time.Now()
	if err := stage.Wait(ctx, length); err != nil {
		return 0, err
	}
	if rules > 0 && server.structured.Load() == 0 {
		return 0, errors.New("expected looks with rules, got none")
	}
	return float64(len(shown())-before) / time.Since(began).Minutes(), s.Errors()
}
