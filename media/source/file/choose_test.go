package file_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/file"
)

// described returns the output of ffprobe for a format and tracks, whose first one has key frames every second.
func described(format, tracks string) []byte {
	return fmt.Appendf(nil, `{"streams":[%s],"packets":[{"stream_index":0,"flags":"K_"},{"stream_index":0,"flags":"__"},{"stream_index":0,"flags":"K__"}],`+
		`"format":{"format_name":%q,"duration":"60.0"}}`, tracks, format)
}

func TestChoose(t *testing.T) {
	const (
		h264  = `{"index":0,"codec_type":"video","codec_name":"h264","pix_fmt":"yuv420p","width":640,"height":360`
		aac   = `{"index":1,"codec_type":"audio","codec_name":"aac","channels":2}`
		other = `{"index":2,"codec_type":"video","codec_name":"h264","width":1280,"height":720`
		huge  = `{"index":3,"codec_type":"video","codec_name":"h264","width":1920,"height":1080`
	)
	for name, tt := range map[string]struct {
		format, tracks string
		video, audio   int
		copied         bool
	}{
		"as it is":                {"mov", h264 + `},` + aac, 0, 1, true},
		"square pixels":           {"mov", h264 + `,"sample_aspect_ratio":"1:1"}`, 0, -1, true},
		"unknown pixels":          {"mov", h264 + `,"sample_aspect_ratio":"0:1"}`, 0, -1, true},
		"wide pixels":             {"mov", h264 + `,"sample_aspect_ratio":"4:3"}`, 0, -1, false},
		"rotated":                 {"mov", h264 + `,"side_data_list":[{"rotation":-90}]}`, 0, -1, false},
		"gray":                    {"mov", strings.Replace(h264, "yuv420p", "gray", 1) + `}`, 0, -1, false},
		"other side data":         {"mov", h264 + `,"side_data_list":[{}]}`, 0, -1, true},
		"HLG":                     {"mov", h264 + `,"color_transfer":"arib-std-b67"}`, 0, -1, false},
		"the default track":       {"matroska", h264 + `},` + other + `,"disposition":{"default":1}}`, 2, -1, true},
		"not the cover":           {"mov", h264 + `,"disposition":{"attached_pic":1,"default":1}},` + other + `}`, 2, -1, true},
		"the best variant":        {"hls", h264 + `},` + other + `},` + huge + `}`, 2, -1, true},
		"the smallest, too large": {"hls", huge + `},` + `{"index":4,"codec_type":"video","codec_name":"h264","width":2560,"height":1440}`, 3, -1, true},
		"sound before the video":  {"hls", `{"index":1,"codec_type":"video"},` + h264 + `}`, 0, -1, true},
		"unknown sound":           {"mov", h264 + `},{"index":1,"codec_type":"audio","codec_tag_string":"apac","channels":2}`, 0, -1, true},
		"encrypted sound":         {"mov", h264 + `},{"index":1,"codec_type":"audio","codec_name":"aac","codec_tag_string":"enca","channels":2}`, 0, -1, true},
		"the default sound":       {"mov", h264 + `},` + aac + `,{"index":5,"codec_type":"audio","codec_name":"aac","channels":2,"disposition":{"default":1}}`, 0, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			video, audio, codec, copied, err := file.Choose(described(tt.format, tt.tracks), 720, false)
			require.NoError(t, err)
			require.Equal(t, media.H264, codec)
			require.Equal(t, []any{tt.video, tt.audio, tt.copied}, []any{video, audio, copied})
		})
	}
	long := bytes.ReplaceAll(described("mov", h264+`}`), []byte("K__"), []byte("___"))
	for _, asIs := range []bool{false, true} {
		_, _, _, copied, err := file.Choose(long, 720, asIs)
		require.NoError(t, err)
		require.Equal(t, asIs, copied, "key frames are rare")
	}
	for want, track := range map[string]string{
		"encrypted": `{"codec_type":"video","codec_name":"h264","codec_tag_string":"encv","width":64,"height":64}`,
		"decode":    `{"codec_type":"video","codec_tag_string":"xxxx","width":64,"height":64}`,
		"limit":     `{"codec_type":"video","codec_name":"h264","width":8192,"height":4322}`,
		"read":      `{"codec_type":"video","codec_name":"webp"}`,
		"key frame": `{"codec_type":"video","codec_name":"h264"}`,
		"no video":  `{"codec_type":"audio","codec_name":"aac","channels":1}`,
	} {
		_, _, _, _, err := file.Choose(described("mov", track), 720, false)
		require.ErrorContains(t, err, want)
		require.Equal(t, want != "key frame", source.IsPermanent(err))
	}
}
