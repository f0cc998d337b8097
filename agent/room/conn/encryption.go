package conn

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/livekit/server-sdk-go/v2/e2ee"
	"github.com/livekit/server-sdk-go/v2/e2ee/types"
	"github.com/pion/webrtc/v4"

	"touchline/internal/redact"
)

const (
	// keyVariable sets the keys of end-to-end encryption.
	keyVariable = "TOUCHLINE_AGENT_E2EE_KEY"
	// noKey and wrongKey are reasons why an encrypted camera shows no picture.
	noKey    = "the camera is end-to-end encrypted; this commentator has no key"
	wrongKey = "the camera is end-to-end encrypted with another key; check " + keyVariable
	// sealed is the least number of bytes that encryption adds to a frame: GCM's tag, the IV, its length and the number of the key.
	sealed = 16 + types.IVLength + 2
	// wrongKeyFrames is the number of consecutive undecryptable frames from which the key counts as wrong. Frames are encrypted
	// independently, so a lost packet spoils only its own.
	wrongKeyFrames = 10
)

var (
	errKeys = errors.New("must be one key for all rooms, or ROOM=KEY for each, separated by commas, no room twice")
	// errSealed is returned for a frame that the key does not fit, errInjected for a frame that the server made.
	errSealed   = errors.New("expected a frame encrypted with this room's key")
	errPlain    = errors.New("expected an access unit of H264 with a slice, which can be encrypted")
	errInjected = errors.New("expected a frame of the publisher, got one of the server")
)

// RoomKeys parses the keys of end-to-end encryption, "KEY" or "ROOM=KEY,ROOM=KEY", to keys by room. Room "" stands for all others.
// "=" at the end belongs to the key, as in base64.
func RoomKeys(text redact.Secret) (map[string]redact.Secret, error) {
	keys := map[string]redact.Secret{}
	for item := range strings.SplitSeq(string(text), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		room, key, _ := strings.Cut(item, "=")
		if strings.Trim(key, "=") == "" {
			room, key = "", item
		}
		room, key = strings.TrimSpace(room), strings.TrimSpace(key)
		if keys[room] != "" || key == "" {
			return nil, errKeys
		}
		keys[room] = redact.Secret(key)
	}
	return keys, nil
}

// Encryption is the end-to-end encryption of a room with one key, in the format of LiveKit's clients. It is safe for concurrent use; nil
// encrypts nothing.
type Encryption struct {
	key         types.KeyProvider
	h264, sound types.FrameEncryptor
}

// NewEncryption returns the encryption of a room with the keys of RoomKeys; nil if it has none.
func NewEncryption(keys redact.Secret, room string) (*Encryption, error) {
	byRoom, err := RoomKeys(keys)
	if err != nil {
		return nil, fmt.Errorf("read the keys of end-to-end encryption: %w", err)
	}
	passphrase := cmp.Or(byRoom[room], byRoom[""])
	if passphrase == "" {
		return nil, nil // a nil Encryption encrypts nothing
	}
	key := e2ee.NewExternalKeyProvider()
	e := &Encryption{key: key}
	err = key.SetKeyFromPassphrase(string(passphrase), 0)
	if err == nil {
		e.h264, err = lksdk.NewFrameEncryptor(key, lksdk.CodecH264)
	}
	if err == nil {
		e.sound, err = lksdk.NewFrameEncryptor(key, lksdk.CodecOpus)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the end-to-end encryption: %w", err)
	}
	return e, nil
}

// Picture encrypts an access unit of H264. It returns an error for one without a slice, which the library would leave as it is.
func (e *Encryption) Picture(annexB []byte) ([]byte, error) {
	out, err := e.h264.EncryptFrame(annexB)
	if err == nil && len(out) < len(annexB)+sealed {
		return nil, errPlain
	}
	return out, err
}

// Sound encrypts an Opus packet; without encryption it returns the packet.
func (e *Encryption) Sound(packet []byte) ([]byte, error) {
	if e == nil || len(packet) == 0 {
		return packet, nil
	}
	return e.sound.EncryptFrame(packet)
}

// codecOf returns the codec of a MIME type, if its frames can be decrypted.
func codecOf(mime string) (codec lksdk.Codec, ok bool) {
	for known, codec := range map[string]lksdk.Codec{
		webrtc.MimeTypeH264: lksdk.CodecH264, webrtc.MimeTypeH265: lksdk.CodecH265, webrtc.MimeTypeOpus: lksdk.CodecOpus,
	} {
		if strings.EqualFold(known, mime) {
			return codec, true
		}
	}
	return 0, false
}

// Locked returns why the end-to-end encryption of a track cannot be undone; "" if it can be, or if there is none.
func (ses *Session) Locked(track *livekit.TrackInfo) string {
	mime := track.GetMimeType()
	_, known := codecOf(mime)
	switch {
	case track.GetEncryption() == livekit.Encryption_NONE:
		return ""
	case ses.encryption == nil:
		return noKey
	case track.GetEncryption() != livekit.Encryption_GCM:
		return "the camera is end-to-end encrypted, but not with AES-GCM as LiveKit's clients do it"
	case mime != "" && !known:
		_, name, _ := strings.Cut(mime, "/")
		return "the camera is end-to-end encrypted in " + strings.ToUpper(name) + ", which this commentator cannot decrypt; publish H264"
	}
	return ""
}

// Decryptor decrypts the frames of one track. It is safe for concurrent use.
type Decryptor struct {
	inner    types.FrameDecryptor // nil for an unknown codec
	injected []byte               // the end of frames that the server makes
	failed   atomic.Uint32        // frames in a row
}

// Decryptor returns the decryptor of a subscribed track in a codec; nil for a track that is not encrypted.
func (ses *Session) Decryptor(track *livekit.TrackInfo, mime string) *Decryptor {
	if track.GetEncryption() == livekit.Encryption_NONE {
		return nil
	}
	d := &Decryptor{injected: ses.Room.SifTrailer()}
	if codec, ok := codecOf(mime); ok && ses.encryption != nil {
		// The library takes an empty end for that of every frame, so Open looks for it.
		if inner, err := lksdk.NewFrameDecryptor(ses.encryption.key, codec, nil); err == nil {
			d.inner = inner
		}
	}
	return d
}

// Open decrypts a frame. It returns an error for a frame that another key or none encrypted.
func (d *Decryptor) Open(frame []byte) ([]byte, error) {
	if len(d.injected) > 0 && bytes.HasSuffix(frame, d.injected) {
		return nil, errInjected
	}
	n := len(frame)
	if d.inner != nil && n > sealed && frame[n-2] == types.IVLength { // the library panics or returns some others as they are
		if out, err := d.inner.DecryptFrame(frame); err == nil && len(out) <= n-sealed {
			d.failed.Store(0)
			return out, nil
		}
	}
	d.failed.Add(1)
	return nil, errSealed
}

// Problem returns why the track cannot be read; "" if it can be.
func (d *Decryptor) Problem() string {
	if d == nil || d.failed.Load() < wrongKeyFrames {
		return ""
	}
	return wrongKey
}
