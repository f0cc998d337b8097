package file

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"time"

	"touchline/media"
	"touchline/media/source"
)

// ReadTS returns the number of access units in a transport stream.
func ReadTS(b []byte, codec media.Codec) (n int, err error) {
	err = readTS(bytes.NewReader(b), stream{codec: codec}, func(unit) error { n++; return nil },
		func(time.Duration, [][]byte) error { return nil })
	return n, err
}

// ReadIVF returns the number of frames in IVF data.
func ReadIVF(b []byte, codec media.Codec) (n int, err error) {
	err = readIVF(bytes.NewReader(b), stream{codec: codec}, func(unit) error { n++; return nil })
	return n, err
}

// ReadProbe parses the output of ffprobe.
func ReadProbe(b []byte) error {
	p, err := readProbe(b)
	if err == nil {
		_, err = p.choose(defaultHeight, false)
	}
	return err
}

// Choose returns how ffmpeg plays what ffprobe described: tracks, codec, whether it is copied, and size.
func Choose(b []byte, height int, asIs bool) (video, audio int, codec media.Codec, copied bool, err error) {
	p, err := readProbe(b)
	if err != nil {
		return 0, 0, 0, false, err
	}
	s, err := p.choose(height, asIs)
	if err != nil {
		return 0, 0, 0, false, err
	}
	return s.video, s.audio, s.codec, s.copied, nil
}

// Proxy is the proxy of ffmpeg without its sockets.
type Proxy struct{ p *proxy }

// NewProxy makes a Proxy for a stream's address.
func NewProxy(target *url.URL) Proxy { return Proxy{&proxy{target: target}} }

// URL returns the URL for ffmpeg.
func (p Proxy) URL() string { return p.p.url() }

// Resolve returns the destination of a request of ffmpeg.
func (p Proxy) Resolve(asked url.URL) url.URL { return p.p.resolve(asked) }

// Location rewrites a redirect for ffmpeg.
func (p Proxy) Location(from *url.URL, where string) string { return p.p.location(from, where) }

// TimesTS returns the PTS and DTS of each picture in a transport stream.
func TimesTS(b []byte, codec media.Codec) (pts, dts []time.Duration) {
	_ = readTS(bytes.NewReader(b), stream{codec: codec}, func(u unit) error {
		pts, dts = append(pts, u.pts), append(dts, u.dts)
		return nil
	}, nil)
	return pts, dts
}

// Pacer paces the units of a test.
type Pacer struct{ p *pacer }

// NewPacer makes a Pacer of a stream.
func NewPacer(now func() time.Time, out source.Sink) Pacer { return Pacer{newPacer(now, out)} }

// NewFilePacer makes a Pacer of a file.
func NewFilePacer(now func() time.Time, out source.Sink) Pacer {
	p := newPacer(now, out)
	p.reopen(true)
	return Pacer{p}
}

// Picture emits a picture that is due at pts.
func (p Pacer) Picture(ctx context.Context, pts time.Duration, key bool) error {
	return p.p.emit(ctx, unit{pts: pts, dts: pts, frame: media.EncodedFrame{KeyFrame: key}})
}

// Behind returns by how much the pictures were late.
func (p Pacer) Behind() time.Duration { return p.p.behind() }

// Sound emits a packet of sound.
func (p Pacer) Sound(ctx context.Context, pts time.Duration, packet []byte) error {
	return p.p.sound(ctx, pts, [][]byte{packet})
}

// PlayTS plays a transport stream until it ends.
func (p Pacer) PlayTS(ctx context.Context, r io.Reader, codec media.Codec) error {
	return readTS(r, stream{codec: codec}, func(u unit) error { return p.p.emit(ctx, u) },
		func(pts time.Duration, packets [][]byte) error { return p.p.sound(ctx, pts, packets) })
}
