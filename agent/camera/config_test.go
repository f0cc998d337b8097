package camera_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/camera"
	"touchline/internal/redact"
	"touchline/media/source/whip"
)

func TestStreamKeys(t *testing.T) {
	tests := []struct {
		keys string
		want []whip.StreamKey // nil: an error
	}{
		{"", []whip.StreamKey{}},
		{"long-enough", []whip.StreamKey{{Identity: "camera", Key: "long-enough"}}},
		{" a-key-of-1, a-key-of-2,", []whip.StreamKey{{Identity: "camera", Key: "a-key-of-1"}, {Identity: "camera-2", Key: "a-key-of-2"}}},
		{"left=12345678", []whip.StreamKey{{Identity: "left", Key: "12345678"}}},
		{"match/left=1234=678", []whip.StreamKey{{Room: "match", Identity: "left", Key: "1234=678"}}},
		{"yard/ 1/left=12345678", []whip.StreamKey{{Room: "yard/ 1", Identity: "left", Key: "12345678"}}},
		{"with/slash", []whip.StreamKey{{Identity: "camera", Key: "with/slash"}}},
		{"short", nil},
		{"left=short", nil},
		{"=12345678", nil},
		{"/left=12345678", nil},
		{"match/=12345678", nil},
	}
	for _, tt := range tests {
		t.Run(tt.keys, func(t *testing.T) {
			c := camera.DefaultConfig()
			c.WHIP.Keys = redact.Secret(tt.keys)
			got, err := c.WHIP.StreamKeys()
			if tt.want == nil {
				require.ErrorContains(t, err, "[[ROOM/]IDENTITY=]KEY")
				require.NotContains(t, err.Error(), "12345678")
				require.Error(t, c.Validate())
				return
			}
			require.NoError(t, err)
			require.ElementsMatch(t, tt.want, got)
		})
	}
}
