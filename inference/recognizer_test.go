package inference_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

func TestTranscriptsAreJoined(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{" the ball ", "", "is out. "}, "the ball is out."},
		{[]string{"球が", "出た。", "Goal"}, "球が出た。Goal"},
		{[]string{"안녕", "하세요"}, "안녕 하세요"},
	} {
		require.Equal(t, c.want, inference.JoinTranscripts(c.parts...))
	}
}
