//go:build integration && !nodemo

package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/bot"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/browser"
	"touchline/internal/redact"
)

// sealedPage joins a room by LiveKit's own client, with end-to-end encryption if it has a key. With a codec it publishes the browser's
// camera and microphone, otherwise it plays what the agent publishes.
const sealedPage = `<!doctype html><title>sealed</title><link rel="icon" href="data:,">
<video id="picture" muted autoplay playsinline></video><audio id="sound" autoplay></audio>
<script src="/livekit-client.umd.js"></script>
<script type="module">
  window.onerror = (message) => { window.failed = message; };
  const { Room, RoomEvent, Track, ExternalE2EEKeyProvider, setLogLevel } = LivekitClient;
  const q = new URLSearchParams(location.search);
  setLogLevel('error');
  window.words = '';
  window.sealed = [];
  try {
    const keyProvider = new ExternalE2EEKeyProvider();
    window.setKey = (key) => keyProvider.setKey(key);
    const room = new Room(q.get('key') ? { encryption: { keyProvider, worker: new Worker('/livekit-client.e2ee.worker.js') } } : {});
    if (q.get('key')) {
      await setKey(q.get('key'));
      await room.setE2EEEnabled(true);
    }
    window.ask = (method) => room.localParticipant.performRpc({ method, payload: '{}', destinationIdentity: 'touchline' });
    room.on(RoomEvent.EncryptionError, (err) => { window.encryptionError = String(err); });
    room.on(RoomEvent.TrackSubscribed, (track, pub, p) => {
      if (!p.isAgent) return;
      window.sealed.push([pub.source, pub.trackInfo.encryption, pub.trackInfo.mimeType].join(' '));
      track.attach(document.getElementById(track.kind === Track.Kind.Video ? 'picture' : 'sound'));
    });
    room.on(RoomEvent.TranscriptionReceived, () => { window.older = true; });
    room.registerTextStreamHandler('lk.transcription', async (reader) => { window.words += await reader.readAll(); });
    await room.connect(q.get('url'), q.get('token'));
    if (q.get('codec')) {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true, video: {
        width: Number(q.get('width')), height: Number(q.get('height')), frameRate: Number(q.get('fps')) } });
      await room.localParticipant.publishTrack(stream.getVideoTracks()[0], {
        source: Track.Source.Camera, videoCodec: q.get('codec'), degradationPreference: 'maintain-resolution' });
      await room.localParticipant.publishTrack(stream.getAudioTracks()[0], { source: Track.Source.Microphone });
    }
    window.ready = true;
  } catch (err) {
    window.failed = String(err);
  }
</script>`

// sealedHouse is a room with pages of LiveKit's client that encrypt.
type sealedHouse struct {
	*house

	pages string
	clip  string
}

func newSealedHouse(t *testing.T) *sealedHouse {
	t.Helper()
	clip, err := makeClip()
	require.NoError(t, err)
	dist, err := filepath.EvalSymlinks(webDist)
	require.NoError(t, err)
	client := filepath.Join(dist, "..", "node_modules", "livekit-client", "dist") // of make web
	require.DirExists(t, client)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".js") {
			http.ServeFile(w, r, filepath.Join(client, filepath.Base(r.URL.Path)))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(sealedPage))
	}))
	t.Cleanup(pages.Close)
	return &sealedHouse{house: newHouse(t), pages: pages.URL, clip: clip}
}

// join opens a page in a room with a key; with a codec it publishes.
func (h *sealedHouse) join(t *testing.T, room, identity, key, codec string) *browser.Browser {
	t.Helper()
	mint := conn.ViewerToken
	if codec != "" {
		mint = conn.CameraToken
	}
	token, err := mint(h.keys, conn.Person{Room: room, Identity: identity})
	require.NoError(t, err)
	b := open(t, h.pages+"/?"+url.Values{
		"url": {h.server.URL()}, "token": {token}, "key": {key}, "codec": {codec},
		"width": {strconv.Itoa(clipWidth)}, "height": {strconv.Itoa(clipHeight)}, "fps": {strconv.Itoa(clipFPS)},
	}.Encode(), browser.Options{Width: 640, Height: 480, Video: h.clip})
	require.NoError(t, b.Until(later, "window.ready || window.failed"))
	failed, err := browser.Eval[string](b, soon, "window.failed ?? ''")
	require.NoError(t, err)
	require.Empty(t, failed)
	return b
}

func reason(b *bot.Bot, want string) func() bool {
	return func() bool { return strings.Contains(b.Snapshot().Status.Detail, want) }
}

// TestEndToEndEncryption: a browser publishes H264 and Opus that LiveKit's client encrypts. The bot with the key comments on them, and a
// viewer with the key sees the delayed picture, hears the voice and reads the captions. One without the right key gets nothing.
func TestEndToEndEncryption(t *testing.T) {
	h := newSealedHouse(t)
	const key = "a passphrase=of this room"
	h.keys.E2EE = "sealed=" + key
	b, page := h.bot(t, "sealed", quick)
	publisher := h.join(t, "sealed", "publisher", key, "h264")
	viewer := h.join(t, "sealed", "viewer", key, "")
	before := counts(t, viewer, 0)
	counts(t, viewer, before)
	heard(t, viewer, later)
	require.NoError(t, viewer.Until(later, "window.words.length > 10"))
	tracks, err := browser.Eval[string](viewer, soon, "window.sealed.toSorted().join(', ')")
	require.NoError(t, err)
	require.Contains(t, tracks, "camera 1 video/H264")
	require.Contains(t, tracks, "microphone 1 audio/")
	require.Contains(t, tracks, "screen_share_audio 1 audio/", "the camera's sound")
	answer, err := browser.Eval[string](viewer, soon, "ask('touchline.status').catch((err) => err.message)")
	require.NoError(t, err)
	require.Contains(t, answer, "refused: it takes", "the viewer has no rights; request and answer are encrypted")
	older, err := browser.Eval[bool](viewer, soon, "window.older === true")
	require.NoError(t, err)
	require.False(t, older, "a caption in the clear")

	stranger := h.join(t, "sealed", "stranger", "another passphrase", "")
	require.NoError(t, stranger.Until(later, "window.encryptionError"))
	seen, err := browser.Eval[string](stranger, soon, "spy.shown + ' ' + window.words.length")
	require.NoError(t, err)
	require.Equal(t, "0 0", seen)

	console := open(t, page, browser.Options{}) // the bot's own page gets picture and voice from the bot, without the room
	require.NoError(t, console.Until(later, "document.getElementById('picture-http').width > 300 && !document.getElementById('picture-http').hidden"))
	commented(t, console, later)

	_, err = browser.Eval[bool](publisher, soon, "window.setKey('another passphrase').then(() => true)")
	require.NoError(t, err)
	require.Eventually(t, reason(b, "encrypted with another key; check TOUCHLINE_AGENT_E2EE_KEY"), later, 100*time.Millisecond)
	_, err = browser.Eval[bool](publisher, soon, "window.setKey('"+key+"').then(() => true)")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Snapshot().Source.FPS > 0 && b.Room.Watcher().Away() == "" }, later, 100*time.Millisecond)
}

// TestPlainCameraInAnEncryptedRoom: a publisher without encryption is watched as ever; the copy of its picture is encrypted, in H264.
func TestPlainCameraInAnEncryptedRoom(t *testing.T) {
	h := newSealedHouse(t)
	h.keys.E2EE = "a key"
	b, _ := h.bot(t, "mixed", quick)
	h.join(t, "mixed", "publisher", "", "vp8")
	viewer := h.join(t, "mixed", "viewer", "a key", "")
	counts(t, viewer, counts(t, viewer, 0))
	tracks, err := browser.Eval[string](viewer, soon, "window.sealed.join(', ')")
	require.NoError(t, err)
	require.Contains(t, tracks, "camera 1 video/H264")
	require.Equal(t, "VP8", b.Snapshot().Source.Codec)
	require.Empty(t, b.Room.Watcher().Away())
}

// TestEncryptionWithoutTheKey: the bot names what it lacks, and says nothing.
func TestEncryptionWithoutTheKey(t *testing.T) {
	h := newSealedHouse(t)
	for _, tt := range []struct{ name, keys, codec, want string }{
		{"none", "another-room=key", "h264", "the camera is end-to-end encrypted; this commentator has no key"},
		{"wrong", "a wrong key", "h264", "the camera is end-to-end encrypted with another key"},
		{"codec", "a key", "vp8", "the camera is end-to-end encrypted in VP8, which this commentator cannot decrypt; publish H264"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.keys.E2EE = redact.Secret(tt.keys)
			b, _ := h.bot(t, tt.name, quick)
			h.join(t, tt.name, "publisher", "a key", tt.codec)
			require.Eventually(t, reason(b, tt.want), later, 100*time.Millisecond)
			require.Zero(t, b.Room.Watcher().Stats().Frames)
		})
	}
}
