package watch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/room/watch"
	"touchline/media"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	cam := watch.Candidate{Identity: "ann", SID: "cam"}
	cam2 := watch.Candidate{Identity: "bob", SID: "cam2"}
	screen := watch.Candidate{Identity: "ann", SID: "screen", Screen: true}
	muted := watch.Candidate{Identity: "cyd", SID: "muted", Muted: true}
	locked := watch.Candidate{Identity: "dan", SID: "locked", Encrypted: true}
	bot := watch.Candidate{Identity: "bot", SID: "bot", Agent: true}
	tests := []struct {
		name    string
		all     []watch.Candidate
		watch   media.WatchConfig
		present string
		want    string
	}{
		{"never an encrypted one", []watch.Candidate{locked}, media.WatchConfig{Identity: "dan"}, "locked", ""},
		{"one in the clear before an encrypted one", []watch.Candidate{locked, screen}, media.WatchConfig{}, "locked", "screen"},
		{"nothing there", nil, media.WatchConfig{}, "", ""},
		{"never an agent", []watch.Candidate{bot}, media.WatchConfig{}, "", ""},
		{"never an agent by name", []watch.Candidate{bot, cam}, media.WatchConfig{Identity: "bot"}, "", ""},
		{"first camera", []watch.Candidate{bot, cam, cam2}, media.WatchConfig{}, "", "cam"},
		{"camera before screen", []watch.Candidate{screen, cam2}, media.WatchConfig{}, "", "cam2"},
		{"screen when there is no camera", []watch.Candidate{bot, screen}, media.WatchConfig{}, "", "screen"},
		{"a live one before a muted one", []watch.Candidate{muted, cam2}, media.WatchConfig{}, "", "cam2"},
		{"the present one stays", []watch.Candidate{cam, cam2}, media.WatchConfig{}, "cam2", "cam2"},
		{"even muted", []watch.Candidate{cam, muted}, media.WatchConfig{}, "muted", "muted"},
		{"not when it no longer matches", []watch.Candidate{cam, cam2}, media.WatchConfig{Identity: "ann"}, "cam2", "cam"},
		{"by identity", []watch.Candidate{cam, cam2}, media.WatchConfig{Identity: "bob"}, "", "cam2"},
		{"by source", []watch.Candidate{cam, screen}, media.WatchConfig{Source: "screen_share"}, "", "screen"},
		{"both", []watch.Candidate{cam2, screen}, media.WatchConfig{Identity: "ann", Source: "camera"}, "", ""},
		{"gone", []watch.Candidate{cam}, media.WatchConfig{}, "old", "cam"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, watch.Choose(tt.all, tt.watch, tt.present))
		})
	}
}
