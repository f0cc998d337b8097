package source_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/media/source"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		in, shown, user, password string
		kind                      source.Kind
	}{
		{in: "rtsp://192.168.1.20:554/stream1", shown: "rtsp://192.168.1.20:554/stream1", kind: source.RTSP},
		{
			in: "rtsp://admin:secret@cam/h264?channel=1&pwd=x1y2", shown: "rtsp://cam/h264?channel=...&pwd=...",
			user: "admin", password: "secret", kind: source.RTSP,
		},
		{in: "RTSPS://u:p%40ss@cam/", shown: "rtsps://cam/", user: "u", password: "p@ss", kind: source.RTSP},
		{in: "rtsp://admin:p@ss#1?%@cam:554/x", shown: "rtsp://cam:554/x", user: "admin", password: "p@ss#1?%", kind: source.RTSP},
		{in: "http://cam/video.mjpg", shown: "http://cam/video.mjpg", kind: source.HTTP},
		{in: "https://a@example.com/live.m3u8#t=1", shown: "https://example.com/live.m3u8", user: "a", kind: source.HTTP},
		{in: "http://[fe80::1%25eth0]:8080/", shown: "http://[fe80::1%25eth0]:8080/", kind: source.HTTP},
		{in: "/tmp/a clip.mp4", shown: "a clip.mp4", kind: source.File},
		{in: "file:///tmp/clip%20one.mkv", shown: "clip one.mkv", kind: source.File},
		{in: "/dev/video2", shown: "webcam:/dev/video2", kind: source.Webcam},
		{in: "webcam", shown: "webcam", kind: source.Webcam},
		{in: "webcam:C920", shown: "webcam:C920", kind: source.Webcam},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			a, err := source.ParseAddress(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.kind, a.Kind)
			require.Equal(t, tt.shown, a.String())
			if tt.user != "" {
				password, _ := a.URL.User.Password()
				require.Equal(t, tt.user, a.URL.User.Username())
				require.Equal(t, tt.password, password)
			}
		})
	}
	for _, bad := range []string{
		"", "ftp://u:hunter2@cam/", "rtsp://", "rtsp:///x", "file://relative", "http://a b:hunter2@ho st/", "x\x00y",
		"http://u:hunter2@cam:99999x/", "rtsp://u:hunter2@@/",
	} {
		_, err := source.ParseAddress(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// A scheme that cannot be opened is named, with what to do.
func TestUnknownSchemes(t *testing.T) {
	for _, scheme := range []string{"rtmp", "srt", "udp", "RTMPS", "mms"} {
		_, err := source.ParseAddress(scheme + "://u:hunter2@host/live")
		require.ErrorContains(t, err, "got "+strings.ToLower(scheme)+";")
		require.ErrorContains(t, err, "VLC")
	}
	_, err := source.ParseAddress("hunter2://host")
	require.NotContains(t, err.Error(), "hunter2")
}

// A "%" before two digits may be an escape or a part of the password.
func TestLiteralPassword(t *testing.T) {
	a, err := source.ParseAddress("rtsp://u:a%41b@cam/")
	require.NoError(t, err)
	decoded, _ := a.URL.User.Password()
	literal, _ := a.Literal.Password()
	require.Equal(t, [2]string{"aAb", "a%41b"}, [2]string{decoded, literal})
	require.Equal(t, "x ... ...", a.Hide("x aAb a%41b"))
	a, err = source.ParseAddress("rtsp://u:a%2@cam/")
	require.NoError(t, err)
	require.Nil(t, a.Literal)
	a, err = source.ParseAddress("http://us er:p@s%2Fs:w#r%d?ü@cam/")
	require.NoError(t, err)
	decoded, _ = a.URL.User.Password()
	require.Equal(t, [2]string{"us er", "p@s/s:w#r%d?ü"}, [2]string{a.URL.User.Username(), decoded}, "a %2F beside a bare %")
}

func TestHide(t *testing.T) {
	a, err := source.ParseAddress("http://admin:p@ss word@cam/x.cgi?user=joe&pwd=q%2Bz9")
	require.NoError(t, err)
	text := "open http://admin:p%40ss%20word@cam/x.cgi?user=joe&pwd=q%2Bz9: admin p@ss word p%40ss+word q+z9"
	hidden := a.Hide(text)
	for _, secret := range []string{"p@ss", "p%40ss", "word", "admin", "joe", "q%2Bz9", "q+z9"} {
		require.NotContains(t, hidden, secret)
	}
	require.Contains(t, hidden, "@cam/x.cgi?user=")
}

// No text of an address has its password.
func FuzzParseAddress(f *testing.F) {
	f.Add("rtsp", "admin", "hunter2", "cam:554/x?a=b")
	f.Add("http", "a@b", "p#?%&", "[::1]/")
	f.Add("file", "", "", "/x")
	f.Fuzz(func(t *testing.T, scheme, user, password, rest string) {
		if len(password) < 4 || strings.ContainsAny(password, "/") || strings.Contains(rest, password) ||
			strings.Contains(scheme, password) {
			return
		}
		a, err := source.ParseAddress(scheme + "://" + user + ":" + password + "@" + rest)
		if err != nil {
			require.NotContains(t, err.Error(), password)
			return
		}
		if a.URL == nil {
			return
		}
		require.NotEmpty(t, a.URL.Hostname())
		if got, ok := a.URL.User.Password(); ok && got == password {
			require.NotContains(t, a.String(), password)
			require.NotContains(t, a.Hide("x "+password+" y "+url.QueryEscape(password)), password)
		}
	})
}
