package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"touchline/agent/camera"
	"touchline/agent/room/conn"
	"touchline/internal/e2e/mediamtx"
	"touchline/internal/e2e/stage"
	"touchline/internal/e2e/whipclient"
	"touchline/media"
	"touchline/media/source"
	"touchline/media/source/catalog"
)

// The cameras' video, with a key frame each second.
const (
	restartPicture = "testsrc2=size=320x180:rate=25"
	restartRate    = 25
)

// restartCamera is a camera that is switched off and on again.
type restartCamera struct {
	name string
	most time.Duration // from its return to its first access unit in the room
	// turnOn starts the camera, returns once its video can be opened, and with it the function that stops it.
	turnOn func(ctx context.Context) (off func(), err error)
	// play publishes it in the room until ctx ends.
	play func(ctx context.Context) error
}

// measureRestarts switches cameras of each kind off for a while and measures, at a viewer in the room, the time from
// their return to the first picture.
func measureRestarts(ctx context.Context, off time.Duration, log zerolog.Logger) ([]row, error) {
	s, err := stage.New(ctx, stage.Options{NoBot: true, NoCamera: true, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	dir, err := os.MkdirTemp("", "touchline-restarts-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	cameras, err := restartCameras(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, len(cameras))
	g, gctx := errgroup.WithContext(ctx)
	for i, c := range cameras {
		g.Go(func() error {
			var err error
			if took[i], err = restart(gctx, s, c, off); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	rows := make([]row, len(cameras))
	for i, c := range cameras {
		rows[i] = atMost(fmt.Sprintf("%s, off for %v: first picture in the room after its return", c.name, off),
			took[i].Seconds(), c.most.Seconds(), "s")
	}
	return rows, s.Errors()
}

// restart measures one camera.
func restart(ctx context.Context, s *stage.Stage, c restartCamera, off time.Duration) (time.Duration, error) {
	const soon = 40 * time.Second
	away, err := c.turnOn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { away() }()
	stop := s.Run(c.play)
	defer stop()
	token, err := conn.ViewerToken(s.Keys, conn.Person{Room: c.name, Identity: "viewer"})
	if err != nil {
		return 0, err
	}
	v, leave, err := joinCounted(ctx, s.Server.URL(), token, "camera")
	if err != nil {
		return 0, err
	}
	defer leave()
	if _, err := stage.Until(ctx, soon, "the first picture", func() bool { return v.count() > restartRate }); err != nil {
		return 0, err
	}
	away()
	if err := stage.Wait(ctx, off); err != nil {
		return 0, err
	}
	// Pictures may arrive before turnOn has noticed that the camera is back.
	gone := time.Now()
	if away, err = c.turnOn(ctx); err != nil {
		away = func() {}
		return 0, err
	}
	back := time.Now()
	var first time.Time
	_, err = stage.Until(ctx, soon, "the first picture after its return", func() (ok bool) {
		first, ok = v.firstAfter(gone)
		return ok
	})
	return max(first.Sub(back), 0), err
}

// restartEncoder are ffmpeg's arguments for the cameras with H264.
var restartEncoder = []string{
	"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "25", "-b:v", "500k",
}

// restartCameras returns one camera of each kind.
func restartCameras(ctx context.Context, s *stage.Stage, dir string) ([]restartCamera, error) {
	rtsp, err := restartRTSP(s)
	if err != nil {
		return nil, err
	}
	mjpeg, err := restartMJPEG(s)
	if err != nil {
		return nil, err
	}
	whip, err := restartWHIP(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	return []restartCamera{rtsp, mjpeg, restartHLS(s, dir), whip}, nil
}

// restartRTSP returns a MediaMTX server with a camera.
func restartRTSP(s *stage.Stage) (restartCamera, error) {
	program, err := mediamtx.Find()
	if err != nil {
		return restartCamera{}, err
	}
	ports, err := mediamtx.FreePorts()
	if err != nil {
		return restartCamera{}, err
	}
	address := fmt.Sprintf("rtsp://127.0.0.1:%d/open-cam", ports.RTSP)
	return restartCamera{
		name: "RTSP", most: 3 * time.Second,
		turnOn: func(ctx context.Context) (func(), error) {
			server, err := mediamtx.Start(ctx, program, ports)
			if err != nil {
				return nil, err
			}
			stop, err := sendTestPicture(ctx, slices.Concat(restartEncoder, []string{"-f", "rtsp", "-rtsp_transport", "tcp", address})...)
			if err != nil {
				server.Close()
				return nil, err
			}
			off := func() { stop(); server.Close() }
			if _, err := stage.Until(ctx, 30*time.Second, "the RTSP camera", func() bool { return isPublished(ctx, address) }); err != nil {
				off()
				return nil, err
			}
			return off, nil
		},
		play: feedOf(s, "RTSP", address),
	}, nil
}

// restartMJPEG returns a camera that accepts one HTTP connection only, so its return is the start of its program.
func restartMJPEG(s *stage.Stage) (restartCamera, error) {
	ports, err := mediamtx.FreePorts()
	if err != nil {
		return restartCamera{}, err
	}
	address := fmt.Sprintf("http://127.0.0.1:%d/video.mjpg", ports.RTSP)
	return restartCamera{
		name: "HTTP-MJPEG", most: 3 * time.Second,
		turnOn: func(ctx context.Context) (func(), error) {
			return sendTestPicture(ctx, "-c:v", "mjpeg", "-q:v", "5", "-f", "mpjpeg", "-flush_packets", "1", "-listen", "1", address)
		},
		play: feedOf(s, "HTTP-MJPEG", address),
	}, nil
}

// restartHLS returns a live playlist that is removed and written again. Its web server runs until Stage.Close.
func restartHLS(s *stage.Stage, dir string) restartCamera {
	const segment = 2 * time.Second
	folder := filepath.Join(dir, "live")
	web := httptest.NewServer(http.StripPrefix("/live/", http.FileServer(http.Dir(folder))))
	s.Run(func(ctx context.Context) error {
		<-ctx.Done()
		web.Close()
		return nil
	})
	return restartCamera{
		name: "HLS", most: 2 * segment,
		turnOn: func(ctx context.Context) (func(), error) {
			list := filepath.Join(folder, "live.m3u8")
			if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o755)); err != nil {
				return nil, err
			}
			stop, err := sendTestPicture(ctx, slices.Concat(restartEncoder, []string{
				"-f", "hls", "-hls_time", fmt.Sprint(segment.Seconds()), "-hls_list_size", "4", "-hls_flags", "delete_segments", list,
			})...)
			if err != nil {
				return nil, err
			}
			off := func() { stop(); _ = os.RemoveAll(folder) }
			_, err = stage.Until(ctx, 30*time.Second, "the playlist", func() bool {
				text, err := os.ReadFile(list)
				return err == nil && bytes.Contains(text, []byte(".ts"))
			})
			if err != nil {
				off()
				return nil, err
			}
			return off, nil
		},
		play: feedOf(s, "HLS", web.URL+"/live/live.m3u8"),
	}
}

// restartWHIP returns a sender whose program crashes and starts again.
func restartWHIP(ctx context.Context, s *stage.Stage, dir string) (restartCamera, error) {
	path := filepath.Join(dir, "whip.h264")
	out, err := exec.CommandContext(ctx, "ffmpeg", slices.Concat(
		[]string{"-v", "error", "-nostdin", "-f", "lavfi", "-i", restartPicture}, restartEncoder,
		[]string{"-x264-params", "aud=1", "-t", "4", path})...).CombinedOutput()
	if err != nil {
		return restartCamera{}, fmt.Errorf("make a clip: %w: %s", err, out)
	}
	stream, err := os.ReadFile(path)
	if err != nil {
		return restartCamera{}, err
	}
	units := whipclient.SplitH264(stream)
	at, err := stageWHIP(ctx, s, nil)
	if err != nil {
		return restartCamera{}, err
	}
	token, err := conn.CameraToken(s.Keys, conn.Person{Room: "WHIP", Identity: "camera"})
	if err != nil {
		return restartCamera{}, err
	}
	return restartCamera{
		name: "WHIP", most: time.Second,
		// The return is the sender's POST.
		turnOn: func(ctx context.Context) (func(), error) {
			var x *sending
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				x, err = startSending(ctx, whipclient.Options{URL: at.WHIP + "WHIP", Token: token, Codec: media.H264, Units: units, FPS: restartRate})
			}()
			return func() {
				<-done
				if err == nil {
					x.stop()
				}
			}, nil
		},
		play: func(ctx context.Context) error { <-ctx.Done(); return nil },
	}, nil
}

// feedOf publishes the video of an address in a room.
func feedOf(s *stage.Stage, roomName, address string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		a, err := source.ParseAddress(address)
		if err != nil {
			return err
		}
		p, err := catalog.Open(catalog.Options{Address: a, Allow: source.AllowEverything(), Now: time.Now, Log: s.Log})
		if err != nil {
			return err
		}
		f, err := camera.New(camera.Options{
			URL: s.Server.URL(), Keys: s.Keys, Room: roomName, Identity: "camera", LoopbackOnly: true, Log: s.Log,
		})
		if err != nil {
			return err
		}
		return f.Play(ctx, p, a.Hide)
	}
}

// sendTestPicture lets ffmpeg send a test picture until stop is called.
func sendTestPicture(ctx context.Context, args ...string) (stop func(), err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "ffmpeg", append([]string{
		"-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", restartPicture, "-threads", "1",
	}, args...)...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start ffmpeg: %w", err)
	}
	return sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}), nil
}

// isPublished reports whether an RTSP server has a video at an address.
func isPublished(ctx context.Context, address string) bool {
	host, _, _ := strings.Cut(strings.TrimPrefix(address, "rtsp://"), "/")
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp4", host)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second)) // a connection always takes one
	if _, err := fmt.Fprintf(c, "DESCRIBE %s RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n", address); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "RTSP/1.0 200")
}
