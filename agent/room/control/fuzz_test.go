package control_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/agenttest"
	"touchline/agent/room/conn"
	"touchline/agent/room/control"
)

// FuzzControl feeds messages of the data topic: from a stranger, nothing reaches the bot; from a moderator, any
// bytes get an answer that is JSON, or a refusal.
func FuzzControl(f *testing.F) {
	for _, seed := range []string{
		`{"id":"7","method":"status"}`, `{"method":"set_instruction","params":{"instruction":"the goalkeeper"}}`,
		`{"method":"clear_instruction"}`, `{"method":"set_profile","params":{"profile":"sports"}}`,
		`{"method":"update_settings","params":{"settings":{"speech":false,"capture_fps":1e300}}}`,
		`{"method":"start","params":{"source":"camera:x"}}`, `{"method":"stop","token":"a.b.c"}`,
		`{"method":"select_source","params":{"source":"scene","token":"x"}}`, `{"method":"fly"}`, `{"method":"stop"} {}`,
		`{"method":"stop","colour":1}`, `{"method":"set_instruction","params":{"instruction":7}}`, `{`, `[]`, `null`, "", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		st := &agenttest.Steered{}
		ok, code, _ := control.AnswerControl(st, payload, false)
		require.False(t, ok)
		require.Contains(t, []string{"bad_request", "forbidden"}, code)
		require.Empty(t, st.Orders(), "steered by a stranger")

		ok, code, answer := control.AnswerControl(st, payload, true)
		if ok {
			require.True(t, json.Valid(answer))
			require.LessOrEqual(t, len(st.Orders()), 1)
			return
		}
		require.Equal(t, "bad_request", code)
		require.Empty(t, st.Orders())
	})
}

// TestEmptyInstruction: an empty text clears the instruction, as clear_instruction does.
func TestEmptyInstruction(t *testing.T) {
	for _, message := range []string{
		`{"method":"set_instruction","params":{"instruction":""}}`, `{"method":"clear_instruction"}`,
	} {
		st := &agenttest.Steered{}
		ok, _, _ := control.AnswerControl(st, []byte(message), true)
		require.True(t, ok, message)
		require.Equal(t, []string{"clear by room: boss"}, st.Orders())
	}
}

// FuzzLinkOf: attributes give an end and links that are valid, or an error.
func FuzzLinkOf(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	const good, revoked = "0000000000000001", "00000000000000ff"
	for _, until := range []string{"1800003600", "1800000000", "9223372036854775807", "-1", "soon", ""} {
		for _, mark := range []string{"spring/" + good, "spring/" + good + "," + revoked, "winter/" + good, "spring/", "spring", "", "a/spring/" + good} {
			f.Add(until, mark)
		}
	}
	keys := conn.Keys{Generation: "spring", Links: access.NewLinks(nil, nil, now)}
	require.NoError(f, keys.Links.Revoke("match", revoked, "", now))
	f.Fuzz(func(t *testing.T, until, mark string) {
		link, err := control.LinkOf(keys, map[string]string{"touchline.rights_until": until, "touchline.link": mark}, now)
		if err == nil {
			require.True(t, now.Before(link.Expires))
			require.Equal(t, strconv.FormatInt(link.Expires.Unix(), 10), strings.TrimLeft(until, "+0"))
			require.Equal(t, mark, keys.Mark(link.Links))
			require.NotContains(t, link.Links, revoked)
		}
		link, err = control.LinkOf(keys, map[string]string{"touchline.link": mark}, now)
		require.True(t, err != nil || link.Expires.IsZero() && !slices.Contains(link.Links, revoked))
	})
}
