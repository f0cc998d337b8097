package file

import (
	"bytes"
	"context"
	"net/url"
	"time"

	"touchline/media"
	"touchline/media/source"
)

// ReadTS, ReadIVF and ReadProbe read what ffmpeg made of strangers' files.
func ReadTS(b []byte, codec media.Codec) (n int, err error) {
	err = readTS(bytes.NewReader(b), stream{codec: codec}, func(unit) error { n++; return nil },
		func(time.Duration, [][]byte) error { return nil })
	return n, err
}

// ReadIVF reads the format of libvpx.
func ReadIVF(b []byte, codec media.Codec) (n int, err error) {
	err = readIVF(bytes.NewReader(b), stream{codec: codec}, func(unit) error { n++; return nil })
	return n, err
}

// ReadProbe reads what ffprobe found.
func ReadProbe(b []byte) error {
	_, err := readProbe(b)
	return err
}

// Proxy is what lies between ffmpeg and a stream's servers, without its sockets.
type Proxy struct{ p *proxy }

// NewProxy is one for a stream's address.
func NewProxy(target *url.URL) Proxy { return Proxy{&proxy{target: target}} }

// URL is what ffmpeg is told to open.
func (p Proxy) URL() string { return p.p.url() }

// Meant is where a request of ffmpeg goes.
func (p Proxy) Meant(asked url.URL) url.URL { return p.p.meant(asked) }

// Location is what ffmpeg learns of a redirect.
func (p Proxy) Location(from *url.URL, where string) string { return p.p.location(from, where) }

// TimesTS returns the PTS and DTS of each picture in a transport stream.
func TimesTS(b []byte, codec media.Codec) (pts, dts []time.Duration) {
	_ = readTS(bytes.NewReader(b), stream{codec: codec}, func(u unit) error {
		pts, dts = append(pts, u.pts), append(dts, u.dts)
		return nil
	}, nil)
	return pts, dts
}

// Pacer hands on what a test gives it.
type Pacer struct{ p *pacer }

// NewPacer makes one.
func NewPacer(now func() time.Time, out source.Sink) Pacer { return Pacer{newPacer(now, out)} }

// Picture is a picture whose time is now, by the clock of the clip.
func (p Pacer) Picture(ctx context.Context, pts time.Duration) error {
	return p.p.emit(ctx, unit{pts: pts, dts: pts})
}

// Sound is a packet of sound.
func (p Pacer) Sound(ctx context.Context, pts time.Duration, packet []byte) error {
	return p.p.sound(ctx, pts, [][]byte{packet})
}
