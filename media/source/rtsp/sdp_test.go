package rtsp_test

import (
	"strings"
	"testing"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
	"github.com/stretchr/testify/require"

	"touchline/media/source/rtsp"
)

// describe parses an SDP as a session does.
func describe(body []byte) (*description.Session, error) {
	s, err := sdpunmarshaler.Unmarshal(rtsp.ReadableSDP(body))
	if err != nil {
		return nil, err
	}
	var desc description.Session
	return &desc, desc.Unmarshal2(s)
}

const (
	sdpHead  = "v=0\no=- 0 0 IN IP4 1.2.3.4\ns=x\nt=0 0\n"
	sdpVideo = "m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\n" +
		"a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV,aM48gA==\na=control:trackID=0\n"
)

// What is not needed for the picture cannot cost the picture.
func TestSDPOfCameras(t *testing.T) {
	for name, body := range map[string]string{
		"good":                      sdpHead + sdpVideo,
		"back channel, no config":   sdpHead + sdpVideo + "m=audio 0 RTP/AVP 97\na=rtpmap:97 MPEG4-GENERIC/8000\na=sendonly\na=control:trackID=5\n",
		"AAC without config":        sdpHead + "m=audio 0 RTP/AVP 97\na=rtpmap:97 mpeg4-generic/16000\na=fmtp:97 mode=AAC-hbr\na=control:trackID=1\n" + sdpVideo,
		"AAC with a bad config":     sdpHead + sdpVideo + "m=audio 0 RTP/AVP 97\na=rtpmap:97 mpeg4-generic/16000\na=fmtp:97 config=zz;sizelength=13\n",
		"many back channels":        sdpHead + sdpVideo + "m=audio 0 RTP/AVP 0 8 97\na=rtpmap:97 x\na=sendonly\nm=audio 0 RTP/AVP 98\na=sendonly\n",
		"bad origin":                strings.Replace(sdpHead, "o=- 0 0 IN IP4 1.2.3.4", "o=nonsense", 1) + sdpVideo,
		"no session lines":          sdpVideo,
		"unknown lines":             sdpHead + "x=1\ny\n=\nb=AS:many\nb=XX:1:2\nz=1\nr=7d 1h\nu=://\nk=\n" + sdpVideo + "q=0\nb=AS:\nc=IN IP9 x\n",
		"bad version and time":      "v=RTSP\ns=\nt=now\nt=a b\nc=\n" + sdpVideo,
		"unknown media":             sdpHead + "m=image 0 RTP/AVP 1\nm=message\nm=data 9 UDP/BFCP *\n" + sdpVideo + "m=application 0 RTP/AVP 107\na=rtpmap:107 x\n",
		"unknown protocol":          sdpHead + strings.Replace(sdpVideo, "RTP/AVP", "RTP/AVP/QUIC", 1),
		"port of nonsense":          sdpHead + strings.Replace(sdpVideo, "video 0", "video -1/x", 1),
		"short m line":              sdpHead + strings.Replace(sdpVideo, "m=video 0 RTP/AVP 96", "m=video 0 RTP/AVP", 1),
		"other type in m line":      sdpHead + strings.Replace(sdpVideo, "m=video 0 RTP/AVP 96", "m=video 0 RTP/AVP 35", 1),
		"spaces":                    sdpHead + "m= video  0  RTP/AVP  96 \n a=rtpmap: 96  H264 / 90000\na=fmtp:96  packetization-mode = 1 ; profile-level-id=42\na=control: x\n",
		"small letters, channels":   sdpHead + "m=video 0 RTP/AVP 96\na=rtpmap:96 h264/90000/1\n",
		"no clock":                  sdpHead + "m=video 0 RTP/AVP 96\na=rtpmap:96 H264\n",
		"no rtpmap":                 sdpHead + "m=video 0 RTP/AVP 96\na=fmtp:96 sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV,aM48gA==\n",
		"low payload type":          sdpHead + strings.NewReplacer(" 96", " 77", ":96", ":77").Replace(sdpVideo),
		"bad parameter sets":        sdpHead + "m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1;sprop-parameter-sets=%%,!!\n",
		"bad packetization mode":    sdpHead + "m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=one;sprop-parameter-sets=&,&\n",
		"bad mid and group":         sdpHead + "a=group:FEC 1 2\na=group:FEC x\n" + sdpVideo + "a=mid:a b c\nm=audio 0 RTP/AVP 0\n",
		"twice the same mid":        sdpHead + sdpVideo + "a=mid:1\nm=audio 0 RTP/AVP 0\na=mid:1\n",
		"bad keys":                  sdpHead + "a=key-mgmt:mikey AAAA\n" + sdpVideo + "a=key-mgmt:sdes x\n",
		"bad session control":       sdpHead + "a=control:%%%\n" + sdpVideo,
		"one bad format of two":     sdpHead + strings.Replace(sdpVideo, "AVP 96", "AVP 300 x 97 96", 1) + "a=rtpmap:97 rtx/\n",
		"carriage returns, zeros":   strings.ReplaceAll(sdpHead+sdpVideo, "\n", "\r\r\n") + "\x00\x00",
		"a byte order mark":         "\ufeff" + sdpHead + sdpVideo,
		"the picture is sendonly":   sdpHead + sdpVideo + "a=sendonly\nm=audio 0 RTP/AVP 0\n",
		"a title in the origin":     "v=0\no= 0 0   \ns=\n" + sdpVideo,
		"everything is sendonly":    sdpHead + sdpVideo + "a=sendonly\n",
		"picture after bad picture": sdpHead + "m=video 0 RTP/AVP 98\na=rtpmap:98 vnd.onvif.metadata/90000\n" + sdpVideo,
	} {
		t.Run(name, func(t *testing.T) {
			desc, err := describe([]byte(body))
			require.NoError(t, err)
			var h264 *format.H264
			media := desc.FindFormat(&h264)
			require.NotNil(t, media)
			require.False(t, media.IsBackChannel)
			if strings.Contains(body, "Z0IAKeKQ") {
				require.NotEmpty(t, h264.SPS)
				require.NotEmpty(t, h264.PPS)
			}
		})
	}
}

// TestFeedback: a stream is set up with the profile RTP/AVPF if it is offered with that alone, by its control.
func TestFeedback(t *testing.T) {
	video := strings.Replace(sdpVideo, "AVP", "AVPF", 1)
	const sound = "m=audio 0 RTP/AVP 0\na=control:trackID=1\n"
	for name, tt := range map[string]struct {
		body string
		with bool
	}{
		"plain":            {sdpVideo + sound, false},
		"alone":            {video + sound, true},
		"both":             {video + sdpVideo, false},
		"absolute":         {strings.Replace(video, "trackID=0", "rtsp://10.0.0.9:8554/cam/trackID=0", 1) + sound, true},
		"absolute, query":  {strings.Replace(video, "trackID=0", "rtsp://10.0.0.9/cam/trackID=0?a=b", 1) + sound, true},
		"no control":       {strings.Replace(video, "a=control:trackID=0\n", "", 1) + sound, true},
		"sound without it": {sdpVideo + "m=audio 0 RTP/AVPF 0\n", false},
		"a longer control": {strings.Replace(sdpVideo, "trackID=0", "x/trackID=0", 1) + strings.Replace(sound, "AVP 0\na=control:trackID=1", "AVPF 0\na=control:trackID=0", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			desc, err := describe([]byte(sdpHead + tt.body))
			require.NoError(t, err)
			at, err := base.ParseURL("rtsp://192.168.1.20:554/cam")
			require.NoError(t, err)
			at, err = desc.Medias[0].URL(at)
			require.NoError(t, err)
			require.Equal(t, tt.with, rtsp.WithFeedback([]byte(sdpHead+tt.body), at))
		})
	}
}

// Base64 may lack its padding, and JPEG may have a dynamic type.
func TestSDPRepairs(t *testing.T) {
	desc, err := describe([]byte(sdpHead + "m=video 0 RTP/AVP 97\na=rtpmap:97 H264/90000\na=fmtp:97 sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV, aM48gA\n"))
	require.NoError(t, err)
	var h264 *format.H264
	require.NotNil(t, desc.FindFormat(&h264))
	require.Equal(t, []byte{0x68, 0xce, 0x3c, 0x80}, h264.PPS)
	desc, err = describe([]byte(sdpHead + "m=video 0 RTP/AVP 96\na=rtpmap:96 JPEG/90000\n"))
	require.NoError(t, err)
	var jpeg *format.MJPEG
	require.NotNil(t, desc.FindFormat(&jpeg))
	desc, err = describe([]byte(sdpHead + "m=video 0 RTP/AVP 96\na=fmtp:96 sprop-vps=QAEMAf//AWAAAAMAAAMAAAMAAAMAlqwJ\n"))
	require.NoError(t, err)
	var h265 *format.H265
	require.NotNil(t, desc.FindFormat(&h265))
}
