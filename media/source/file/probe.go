package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"touchline/internal/child"
	"touchline/media"
	"touchline/media/codec"
	"touchline/media/source"
)

const (
	probeTime = 10 * time.Second
	maxProbe  = 16 << 20 // bytes of ffprobe's answer
	maxSide   = 8192
	// encodedPixels bounds a transcoded picture: 1080p.
	encodedPixels = 1920 * 1080
	// slowPixels and slowRate bound the pictures a second of a transcoded picture that is larger.
	slowPixels = 2560 * 1440
	slowRate   = 15
)

// stream is what ffmpeg makes of a clip.
type stream struct {
	codec         media.Codec
	copied        bool // otherwise transcoded to H264
	width, height int
	video, audio  int // indexes of ffmpeg; audio is -1 without sound
	opus          bool
	hls           bool
	finite        bool   // a file, also over HTTP
	brief         bool   // so short that it is soon repeated from memory
	rare          bool   // its key frames may be far apart
	filter        string // of transcoded pictures
	rate          int    // the most of them a second, 0 for all
	curve         string // of their colours, "" for the usual range
	bitRate       int    // of transcoded pictures, in bit/s
	skip          bool   // pictures that no other refers to are not decoded
	advice        string // what is not shown as it should be, "" for nothing
}

// probed is the output of ffprobe.
type probed struct {
	Streams  []probedStream `json:"streams"`
	Programs []struct {
		Streams []struct {
			Index int `json:"index"`
		} `json:"streams"`
	} `json:"programs"`
	Packets []struct {
		Index int    `json:"stream_index"`
		PTS   *int64 `json:"pts"` // nil where the container has none
		Flags string `json:"flags"`
	} `json:"packets"`
	Format struct {
		Name     string `json:"format_name"`
		Duration string `json:"duration"`
	} `json:"format"`
}

// probedStream is a track.
type probedStream struct {
	Index       int            `json:"index"`
	Type        string         `json:"codec_type"`
	Codec       string         `json:"codec_name"`
	Tag         string         `json:"codec_tag_string"`
	Format      string         `json:"pix_fmt"`
	Width       int            `json:"width"`
	Height      int            `json:"height"`
	Aspect      string         `json:"sample_aspect_ratio"`
	Transfer    string         `json:"color_transfer"`
	Fields      string         `json:"field_order"`
	Rate        string         `json:"avg_frame_rate"`
	BFrames     int            `json:"has_b_frames"`
	Channels    int            `json:"channels"`
	Disposition map[string]int `json:"disposition"`
	SideData    []struct {
		Rotation float64 `json:"rotation"`
	} `json:"side_data_list"`
}

// entries asks ffprobe for the fields of probed.
const entries = "stream=index,codec_type,codec_name,codec_tag_string,pix_fmt,width,height,sample_aspect_ratio,color_transfer,field_order," +
	"avg_frame_rate,has_b_frames,channels:stream_disposition=default,attached_pic,timed_thumbnails,still_image:stream_side_data=rotation:" +
	"packet=stream_index,pts,flags:program_stream=index:format=format_name,duration"

// lookAhead is how much of a clip is searched for its second key frame, somewhat more than source.KeyFrameLimit. ffprobe has read that
// much of a stream anyway.
const lookAhead = "2.2"

// shortClip is the length of a clip that needs no second key frame, as it soon begins anew.
const shortClip = 2500 * time.Millisecond

// scale returns the filter that makes square pixels of the usual range, at least 2 and an even number in both directions, at most
// encodedPixels in all. It is an expression as the rotation is known to ffmpeg alone.
func scale() string {
	side := func(pixels string) string {
		return fmt.Sprintf("'max(2,trunc(%s*min(1,sqrt(%d/(iw*sar*ih)))/2)*2)'", pixels, encodedPixels)
	}
	return "scale=w=" + side("iw*sar") + ":h=" + side("ih") + ":out_range=tv,setsar=1"
}

// probe runs ffprobe once, and asks ffmpeg for the filters that the picture needs.
func (c *Clip) probe(ctx context.Context, in input) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := c.spaced(ctx, "ffprobe"); err != nil {
		return nil, err
	}
	cmd, stderr := in.command(ctx, "ffprobe", nil, []string{"-show_entries", entries, "-read_intervals", "%+" + lookAhead, "-of", "json"})
	text, _, err := child.Run(cmd, in.limits(maxSide*maxSide/4), maxProbe, in.env...)
	if ctx.Err() != nil {
		if failed := in.failure(); failed != nil {
			return nil, source.Errorf("look at the video: %w", failed)
		}
		return nil, source.Errorf("look at the video: no answer within %v", probeTime)
	}
	if err != nil {
		err = c.explain(in, "look at the video", err, stderr)
		if c.opts.Address.Kind == source.File && !in.unfinished(stderr) && !errors.Is(err, child.ErrMemory) {
			err = source.Permanent(err)
		}
		return nil, err
	}
	p, err := readProbe(text)
	if err != nil {
		return nil, err
	}
	s, err := p.choose(c.opts.Height, c.opts.Copy)
	if err == nil && s.curve != "" {
		c.toneMap(ctx, s)
	}
	return s, err
}

// toneMap adds the conversion from a high dynamic range, or the advice to install a filter that does it. White is at 203 cd/m2
// (ITU-R BT.2408 section 2.1), which stays white; what is up to five times as bright is compressed.
func (c *Clip) toneMap(ctx context.Context, s *stream) {
	if !c.offers(ctx, "filter=zscale", "zscale AVOptions") || !c.offers(ctx, "filter=tonemap", "tonemap AVOptions") {
		s.advice = "Its colours look pale: they have a high dynamic range, and ffmpeg has no filter zscale or tonemap to convert them. " +
			"Install an ffmpeg built with libzimg. " + s.advice
		return
	}
	s.filter += fmt.Sprintf(",zscale=tin=%s:min=2020_ncl:pin=2020:rin=tv:t=linear:p=2020:npl=203,format=gbrpf32le,zscale=p=709,"+
		"tonemap=mobius:param=0.9:peak=5:desat=0,zscale=t=709:m=170m:r=tv", s.curve)
}

// readProbe reads ffprobe's JSON.
func readProbe(text []byte) (*probed, error) {
	p := &probed{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, source.Errorf("look at the video: %w", err)
	}
	return p, nil
}

// choose selects the tracks and how they are played. Streams with variants yield the best one of at most height rows. With asIs only a
// picture that would lie on its side or have wrong colours is transcoded.
func (p *probed) choose(height int, asIs bool) (*stream, error) {
	v, err := p.picture(height)
	if err != nil {
		return nil, err
	}
	s := &stream{codec: media.H264, width: v.Width, height: v.Height, video: v.Index, audio: -1, hls: p.hls(), finite: p.seconds() > 0}
	s.brief, s.rare = s.finite && p.seconds() <= shortTime.Seconds(), p.rare(v)
	if a := p.sound(v); a != nil {
		s.audio, s.opus = a.Index, a.Codec == "opus" && a.Channels <= 2
	}
	codecs := map[string]media.Codec{"h264": media.H264, "hevc": media.H265, "vp8": media.VP8, "vp9": media.VP9, "av1": media.AV1}
	to, ok := codecs[v.Codec]
	ok = ok && (to != media.VP9 && to != media.AV1 || v.Format == "yuv420p") && v.Format != "gray" && p.timed(v)
	short := s.finite && p.seconds() <= shortClip.Seconds()
	if ok && v.upright() && v.curve() == "" && (asIs || to == media.H265 || !s.rare || short) {
		s.codec, s.copied = to, true
		return s, nil
	}
	if ok && v.upright() && v.curve() == "" {
		s.advice = "Its key frames are more than 2 s apart, so ffmpeg transcodes it."
	}
	s.filter, s.curve = scale(), v.curve()
	if !slices.Contains([]string{"", "unknown", "progressive"}, v.Fields) {
		s.filter = "yadif," + s.filter
	}
	s.bitRate = int(2_500_000 * math.Pow(max(1, float64(min(v.Width*v.Height, encodedPixels))/(1280*720)), 0.75))
	if rate := v.rate(); v.Width*v.Height > slowPixels && rate > slowRate {
		s.rate, s.skip = slowRate, rate >= 2*slowRate
		s.advice = fmt.Sprintf("A picture of %d x %d pixels is transcoded: %d of %.0f pictures a second are shown.",
			v.Width, v.Height, slowRate, rate)
	}
	return s, nil
}

// picture returns the track to show.
func (p *probed) picture(height int) (*probedStream, error) {
	var tracks []*probedStream
	cover := false
	for i := range p.Streams {
		switch t := &p.Streams[i]; {
		case t.Type != "video":
		case t.Disposition["attached_pic"] != 0 || t.Disposition["timed_thumbnails"] != 0:
			cover = true
		default:
			tracks = append(tracks, t)
		}
	}
	switch {
	case len(tracks) == 0 && cover:
		return nil, source.Permanent(source.Errorf("there is no video in it, only the cover picture of its sound"))
	case len(tracks) == 0:
		return nil, source.Permanent(source.Errorf("there is no video in it"))
	}
	best := slices.MaxFunc(tracks, func(x, y *probedStream) int { return x.rank(y, height, p.hls()) })
	switch w, h := best.Width, best.Height; {
	case best.Tag == "encv":
		return nil, source.Permanent(source.Errorf("its video track is encrypted (DRM); a key cannot be given"))
	case !best.decodable():
		return nil, source.Permanent(source.Errorf("ffmpeg cannot decode its video track (%s)", best.Tag))
	case (w < 1 || h < 1) && (best.Codec == "h264" || best.Codec == "hevc"):
		return nil, source.Errorf("its video has no key frame at its begin, as in a cut recording; cut it at a key frame")
	case w < 1 || h < 1:
		return nil, source.Permanent(source.Errorf("ffmpeg cannot read this kind of picture or video; convert it to MP4 with H264, or to PNG"))
	case w > maxSide || h > maxSide || w*h > codec.MaxPixels:
		return nil, source.Permanent(source.Errorf("its picture has %d x %d pixels; the limit is %d x %d",
			w, h, maxSide, codec.MaxPixels/maxSide))
	}
	return best, nil
}

// decodable reports whether ffmpeg knows the codec of the track, which is not encrypted.
func (t *probedStream) decodable() bool {
	return t.Codec != "" && t.Codec != "unknown" && t.Codec != "none" && t.Tag != "encv" && t.Tag != "enca"
}

// rank compares two tracks: those that can be decoded are best, then by size in a stream with variants, else by their dispositions. The
// first of equal ones wins.
func (t *probedStream) rank(o *probedStream, height int, variants bool) int {
	number := func(ok bool) int {
		if ok {
			return 1
		}
		return 0
	}
	size := func(t *probedStream) int {
		if short := min(t.Width, t.Height); short <= height {
			return short
		}
		return -min(t.Width, t.Height) // the smallest of those that are too large
	}
	if by := number(t.decodable()) - number(o.decodable()); by != 0 {
		return by
	}
	if variants {
		return size(t) - size(o)
	}
	return t.Disposition["default"] - o.Disposition["default"]
}

func (p *probed) hls() bool {
	return strings.Contains(p.Format.Name, "hls") || strings.Contains(p.Format.Name, "dash")
}

// sound returns the track to hear: of the picture's program if there are programs, the default one if there are several.
func (p *probed) sound(v *probedStream) (best *probedStream) {
	var own []int
	for _, program := range p.Programs {
		var indexes []int
		for _, s := range program.Streams {
			indexes = append(indexes, s.Index)
		}
		if slices.Contains(indexes, v.Index) {
			own = append(own, indexes...)
		}
	}
	for i := range p.Streams {
		t := &p.Streams[i]
		if t.Type != "audio" || t.Channels < 1 || !t.decodable() || len(own) > 0 && !slices.Contains(own, t.Index) {
			continue
		}
		if best == nil || t.Disposition["default"] > best.Disposition["default"] {
			best = t
		}
	}
	return best
}

// seconds returns the length of a file, 0 for a live stream.
func (p *probed) seconds() float64 {
	d, _ := strconv.ParseFloat(p.Format.Duration, 64)
	return max(0, d)
}

// rare reports whether no second key frame of the track follows soon.
func (p *probed) rare(v *probedStream) bool {
	pictures, keys := 0, 0
	for _, packet := range p.Packets {
		if packet.Index == v.Index {
			pictures++
			if strings.HasPrefix(packet.Flags, "K") {
				keys++
			}
		}
	}
	return pictures > 0 && keys < 2
}

// timed reports whether the track's pictures have times to be shown at. AVI and bare streams with B frames leave them to the decoder.
func (p *probed) timed(v *probedStream) bool {
	if v.BFrames == 0 {
		return true
	}
	for _, packet := range p.Packets {
		if packet.Index == v.Index && packet.PTS == nil {
			return false
		}
	}
	return true
}

// upright reports whether the track is shown as it is stored: not rotated, with square pixels.
func (t *probedStream) upright() bool {
	for _, d := range t.SideData {
		if d.Rotation != 0 {
			return false
		}
	}
	w, h, ok := strings.Cut(t.Aspect, ":")
	return !ok || w == h || w == "0" || h == "0"
}

// curve returns the transfer curve of a high dynamic range as zscale names it, "" for the usual range.
func (t *probedStream) curve() string {
	switch t.Transfer {
	case "smpte2084", "arib-std-b67":
		return t.Transfer
	}
	return ""
}

// rate returns the pictures a second, 0 when unknown.
func (t *probedStream) rate() float64 {
	a, b, _ := strings.Cut(t.Rate, "/")
	x, _ := strconv.ParseFloat(a, 64)
	y, _ := strconv.ParseFloat(b, 64)
	if y <= 0 {
		return 0
	}
	return x / y
}
