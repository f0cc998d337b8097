package remote_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference"
)

// TestTrace: the exchanges are the bodies as they were sent, with the sizes of pictures, and all text of the model.
func TestTrace(t *testing.T) {
	t.Parallel()
	s := serve(t, list("vllm", "m"), func(w http.ResponseWriter, r request, n int) {
		switch {
		case r.Format != nil:
			refuse(w, http.StatusBadRequest)
		case n == 2:
			stream(w, delta("<think>where is the ball?</think>I see no rule."), stop)
		default:
			stream(w, `data: {"choices":[{"delta":{"reasoning":"JSON, then."}}]}`+"\n\n", delta(fits), stop)
		}
	})
	se := session(t, open(t, s.URL))
	var got []inference.Exchange
	p := prompt
	p.Schema, p.Text = []byte(schema), `Which "rule" holds?`
	p.Frames = []inference.Frame{{Width: 32, Height: 32, Pix: make([]byte, 32*32*3)}}
	p.Trace = func(x inference.Exchange) { got = append(got, x) }
	text, err := ask(t.Context(), se, p)
	require.NoError(t, err)
	require.Equal(t, fits, text)
	require.Len(t, got, 3, "refused, wrong and repaired")
	require.Contains(t, got[0].Error, "400 Bad Request")
	require.Empty(t, got[0].Answer)
	require.Equal(t, "<think>where is the ball?</think>I see no rule.", got[1].Answer)
	require.Equal(t, inference.Exchange{Request: got[2].Request, Reasoning: "JSON, then.", Answer: fits}, got[2])
	for i, x := range got {
		var sent request
		require.NoError(t, json.Unmarshal([]byte(x.Request), &sent), x.Request)
		require.Equal(t, "m", sent.Model)
		require.Equal(t, i == 0, sent.Format != nil)
		require.Less(t, len(x.Request), 4096)
		require.Regexp(t, `"url":"data:image/jpeg;base64,\.\.\. \(\d+ bytes\)"`, x.Request)
	}
	require.Contains(t, got[2].Request, "I see no rule.", "the repair names the wrong answer")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ask(ctx, se, p)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, got, 3, "nothing was sent")
}
