//go:build integration && !nodemo

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/internal/clocktest"
)

// TestRevokedInEachProcess: a link that is revoked in one process ends what it opened in another one of the room, a stream and a WHEP
// session, within five seconds of each try. As long as a busy machine wakes this process late, so may they be.
func TestRevokedInEachProcess(t *testing.T) {
	t.Parallel()
	const operator = "correct-horse-battery" // else clients of this machine need no link
	h := newAgentHouse(t)
	var homes []string
	for _, identity := range []string{"one", "other"} {
		_, home := start(t, []string{
			"LIVEKIT_URL=" + h.url, "LIVEKIT_API_KEY=" + h.keys.APIKey, "LIVEKIT_API_SECRET=" + h.keys.APISecret,
			"TOUCHLINE_INFERENCE_ENGINE=scene", "TOUCHLINE_AGENT_LIVEKIT_IDENTITY=" + identity,
			"TOUCHLINE_AGENT_CONSOLE_TOKEN=" + operator,
		}, "join", "--room", agentRoom, "--listen", "127.0.0.1:0")
		homes = append(homes, strings.TrimSuffix(home, "/"))
	}
	one, other := homes[0], homes[1]
	ask := func(method, url, token, kind, body string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	for _, home := range homes {
		require.Eventually(t, func() bool {
			var status struct {
				CaptureRunning bool `json:"capture_running"`
			}
			return json.NewDecoder(ask("GET", home+"/api/status", operator, "", "").Body).Decode(&status) == nil && status.CaptureRunning
		}, startWait, 100*time.Millisecond, "it watches the camera")
	}

	const most = 5 * time.Second
	late := clocktest.Late(t)
	for range 3 {
		var link struct{ ID, Token string }
		made := ask("POST", one+"/api/links", operator, "application/json", `{"rights":["watch"],"for":"1h"}`)
		require.Equal(t, http.StatusCreated, made.StatusCode)
		require.NoError(t, json.NewDecoder(made.Body).Decode(&link))

		stream := ask("GET", other+"/api/events", link.Token, "", "")
		require.Equal(t, http.StatusOK, stream.StatusCode)
		why := make(chan string, 1)
		go func() {
			expired := ""
			for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
				if lines.Text() == "event: expired" && lines.Scan() {
					expired = lines.Text()
				}
			}
			why <- expired
		}()
		player, err := webrtc.NewPeerConnection(webrtc.Configuration{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = player.Close() })
		for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
			_, err = player.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly})
			require.NoError(t, err)
		}
		plays, gone := make(chan struct{}, 2), make(chan struct{}, 8)
		player.OnTrack(func(*webrtc.TrackRemote, *webrtc.RTPReceiver) { plays <- struct{}{} })
		player.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
			if s == webrtc.PeerConnectionStateClosed || s == webrtc.PeerConnectionStateFailed {
				gone <- struct{}{}
			}
		})
		offer, err := player.CreateOffer(nil)
		require.NoError(t, err)
		gathered := webrtc.GatheringCompletePromise(player)
		require.NoError(t, player.SetLocalDescription(offer))
		<-gathered
		var answer *http.Response
		require.Eventually(t, func() bool { // from when there is a delayed picture
			answer = ask("POST", other+"/whep/"+agentRoom, link.Token, "application/sdp", player.LocalDescription().SDP)
			return answer.StatusCode == http.StatusCreated
		}, startWait, time.Second)
		sdp, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, player.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(sdp)}))
		within(t, plays, "a track plays")

		began, busy := time.Now(), late()
		require.Equal(t, http.StatusNoContent, ask("DELETE", one+"/api/links/"+link.ID, operator, "", "").StatusCode)
		require.Contains(t, within(t, why, "the stream ends"), `"revoked_link"`)
		stopped := time.Since(began)
		within(t, gone, "the WHEP session ends")
		took, busy := time.Since(began), late()-busy
		t.Logf("stream after %v, both after %v; the machine was late by %v", stopped, took, busy)
		require.LessOrEqual(t, took, most+busy)
		require.Equal(t, http.StatusUnauthorized, ask("GET", other+"/api/status", link.Token, "", "").StatusCode)
	}
}

// within returns what a channel has, or fails.
func within[T any](t *testing.T, c <-chan T, what string) (out T) {
	t.Helper()
	select {
	case out = <-c:
	case <-time.After(startWait):
		require.FailNow(t, "too late", what)
	}
	return out
}
