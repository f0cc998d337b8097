package conn

import (
	"crypto/rand"
	"testing"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"github.com/stretchr/testify/require"

	"touchline/internal/redact"
)

func TestRoomKeys(t *testing.T) {
	t.Parallel()
	tests := map[redact.Secret]map[string]redact.Secret{
		"":                        {},
		"hunter2":                 {"": "hunter2"},
		"aHVudGVyMg==":            {"": "aHVudGVyMg=="},
		"match=hunter2":           {"match": "hunter2"},
		"match=aHVudGVyMg==":      {"match": "aHVudGVyMg=="},
		" a = one key, b=two\n,":  {"a": "one key", "b": "two"},
		"the others, match=this,": {"": "the others", "match": "this"},
		"one, two":                nil,
		"match=a, match=b":        nil,
	}
	for text, want := range tests {
		got, err := RoomKeys(text)
		require.Equal(t, want, got, string(text))
		require.Equal(t, want == nil, err != nil, string(text))
	}
	none, err := NewEncryption("match=hunter2", "another")
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = NewEncryption("a, b", "match")
	require.Error(t, err)
}

// sealer is a session of a room with a key.
func sealer(t *testing.T, key redact.Secret) *Session {
	t.Helper()
	ses := NewSession(nil)
	ses.Room = lksdk.NewRoom(nil)
	var err error
	ses.encryption, err = NewEncryption(key, "match")
	require.NoError(t, err)
	return ses
}

func gcm(mime string) *livekit.TrackInfo {
	return &livekit.TrackInfo{MimeType: mime, Encryption: livekit.Encryption_GCM}
}

func TestDecryptor(t *testing.T) {
	t.Parallel()
	right, wrong := sealer(t, "hunter2"), sealer(t, "match=hunter3")
	picture := []byte{0, 0, 0, 1, 0x67, 1, 2, 3, 0, 0, 0, 1, 0x65, 0x88, 4, 5, 6}
	sealed, err := right.encryption.Picture(picture)
	require.NoError(t, err)
	require.Equal(t, picture[:14], sealed[:14], "parameter sets and the first bytes of the slice are in the clear")
	d := right.Decryptor(gcm(webrtc.MimeTypeH264), webrtc.MimeTypeH264)
	got, err := d.Open(sealed)
	require.NoError(t, err)
	require.Equal(t, picture, got)

	h265, err := lksdk.NewFrameEncryptor(right.encryption.key, lksdk.CodecH265)
	require.NoError(t, err)
	picture = []byte{0, 0, 0, 1, 0x42, 1, 2, 3, 0, 0, 0, 1, 0x26, 1, 0xaf, 5, 6}
	sealed265, err := h265.EncryptFrame(picture)
	require.NoError(t, err)
	got, err = right.Decryptor(gcm(webrtc.MimeTypeH265), webrtc.MimeTypeH265).Open(sealed265)
	require.NoError(t, err)
	require.Equal(t, picture, got)

	for _, packet := range [][]byte{{0x78}, {0x78, 1, 2, 3}} {
		sealed, err := right.encryption.Sound(packet)
		require.NoError(t, err)
		got, err := right.Decryptor(gcm(webrtc.MimeTypeOpus), webrtc.MimeTypeOpus).Open(sealed)
		require.NoError(t, err)
		require.Equal(t, packet, got)
	}
	plain, err := (*Encryption)(nil).Sound([]byte{1})
	require.NoError(t, err)
	require.Equal(t, []byte{1}, plain)

	other := wrong.Decryptor(gcm(webrtc.MimeTypeH264), webrtc.MimeTypeH264)
	for range wrongKeyFrames {
		require.Empty(t, other.Problem())
		_, err = other.Open(sealed)
		require.ErrorIs(t, err, errSealed)
	}
	require.Equal(t, wrongKey, other.Problem())
	require.Nil(t, right.Decryptor(&livekit.TrackInfo{}, webrtc.MimeTypeH264), "a track in the clear")
	require.Empty(t, (*Decryptor)(nil).Problem())
}

// TestDecryptorRefusesAnything: bytes of any length are refused without a panic, also those that the library takes for a short frame.
func TestDecryptorRefusesAnything(t *testing.T) {
	t.Parallel()
	ses := sealer(t, "hunter2")
	for _, mime := range []string{webrtc.MimeTypeH264, webrtc.MimeTypeH265, webrtc.MimeTypeOpus, webrtc.MimeTypeVP8} {
		d := ses.Decryptor(gcm(mime), mime)
		for n := range 64 {
			for _, iv := range []byte{0, 1, 12, 13, 30, 255} {
				frame := make([]byte, n)
				_, _ = rand.Read(frame)
				if n > 8 {
					copy(frame, []byte{0, 0, 0, 1, 0x65, 0x88})
				}
				if n >= 2 {
					frame[n-2], frame[n-1] = iv, 0
				}
				_, err := d.Open(frame)
				require.Error(t, err, "%s %x", mime, frame)
			}
		}
	}
	injected := &Decryptor{injected: []byte("the server's")}
	for range 2 * wrongKeyFrames {
		_, err := injected.Open([]byte("a frame of the server's"))
		require.ErrorIs(t, err, errInjected)
	}
	require.Empty(t, injected.Problem())
}

func TestLocked(t *testing.T) {
	t.Parallel()
	without, with := sealer(t, ""), sealer(t, "hunter2")
	require.Empty(t, without.Locked(&livekit.TrackInfo{MimeType: webrtc.MimeTypeVP8}))
	require.Equal(t, noKey, without.Locked(gcm(webrtc.MimeTypeH264)))
	for _, mime := range []string{"", webrtc.MimeTypeH264, "video/h265", webrtc.MimeTypeOpus} {
		require.Empty(t, with.Locked(gcm(mime)), mime)
	}
	for name, mime := range map[string]string{"VP8": webrtc.MimeTypeVP8, "VP9": webrtc.MimeTypeVP9, "AV1": webrtc.MimeTypeAV1} {
		require.Equal(t, "the camera is end-to-end encrypted in "+name+", which this commentator cannot decrypt; publish H264",
			with.Locked(gcm(mime)))
	}
	require.Contains(t, with.Locked(&livekit.TrackInfo{Encryption: livekit.Encryption_CUSTOM}), "not with AES-GCM")
	require.True(t, with.Enables(webrtc.MimeTypeH264))
	require.False(t, with.Enables(webrtc.MimeTypeVP8))
	require.True(t, without.Enables(webrtc.MimeTypeVP8))
}

// TestPictureIsEncrypted: what the library leaves as it is never leaves in the clear.
func TestPictureIsEncrypted(t *testing.T) {
	e, err := NewEncryption("a key", "room")
	require.NoError(t, err)
	for _, plain := range [][]byte{nil, {0x10, 0, 0x9d, 1, 2, 3, 4, 5}, {0, 0, 0, 1, 6, 5, 1, 0x41, 0x80}, {0, 0, 0, 1, 0x62, 1, 2, 3}} {
		_, err := e.Picture(plain)
		require.ErrorContains(t, err, "expected an access unit of H264")
	}
	out, err := e.Picture([]byte{0, 0, 0, 1, 0x65, 0x88, 1, 2, 3})
	require.NoError(t, err)
	require.Greater(t, len(out), 9)
}
