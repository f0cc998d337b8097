package whep_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"touchline/agent/look"
)

// written is a text of the data channel with the fields of these tests.
type written struct {
	Type   string
	Past   bool
	Record look.Record
	Reason string
}

// records returns the player's texts so far, without captions and states.
func (p *player) records(t *testing.T) []written {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []written
	for _, text := range p.texts {
		var m written
		require.NoError(t, json.Unmarshal([]byte(text), &m))
		if m.Type == "record" {
			out = append(out, m)
		}
	}
	return out
}

// A later player does not receive comments that were dropped or skipped.
func TestLatePlayerHearsNoDroppedComments(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.feed.Record(look.Record{Cycle: 1, Text: "heard", Outcome: look.OutcomeSpoken})
	s.feed.Record(look.Record{Cycle: 2, Text: "replaced before it was heard", Outcome: look.OutcomeDropped})
	s.feed.Record(look.Record{Cycle: 3, Text: "read", Outcome: look.OutcomeShown})
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	s.feed.Record(look.Record{Cycle: 4, Text: "new", Outcome: look.OutcomeSpoken})
	require.Eventually(t, func() bool {
		got := p.records(t)
		return len(got) > 0 && got[len(got)-1].Record.Cycle == 4
	}, patience, time.Millisecond)
	var cycles []uint64
	for _, m := range p.records(t) {
		cycles = append(cycles, m.Record.Cycle)
	}
	require.Equal(t, []uint64{1, 3, 4}, cycles)
}

// Texts sent while a data channel opens follow the past ones, without loss.
func TestTextsWhileTheChannelOpens(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	stop, done := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-done }()
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			s.feed.Record(look.Record{Cycle: uint64(n), Text: "text", Outcome: look.OutcomeSpoken})
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	require.Eventually(t, func() bool { return s.feed.Past() == 5 }, patience, time.Millisecond)
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	require.Eventually(t, func() bool { return len(p.records(t)) > 60 }, patience, time.Millisecond)
	got := p.records(t)
	for i, m := range got[1:] {
		require.Equal(t, i+1 < 5, m.Past, "five of the past come first: text %d", i+2)
		require.Equal(t, got[i].Record.Cycle+1, m.Record.Cycle, "text %d", i+2)
	}
}

// Too many data channels end the session.
func TestTooManyChannelsEndTheSession(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	p := newPlayer(t, webrtc.MimeTypeH264)
	p.watch(t, s)
	require.Eventually(t, func() bool { pictures, _, _, _ := p.seen(); return pictures > 0 }, patience, time.Millisecond)
	for n := range 40 { // ten times as many as there may be
		if _, err := p.pc.CreateDataChannel(fmt.Sprint("channel-", n), nil); err != nil {
			break // the session has ended already
		}
	}
	require.Eventually(t, func() bool { return s.Players("") == 0 }, patience, time.Millisecond)
	resp, _ := s.request(t, http.MethodDelete, p.location, "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(s.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	ends := -1.0
	for _, f := range families {
		if f.GetName() == "touchline_whep_channel_ends_total" {
			ends = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.InDelta(t, 1, ends, 0)
}
