//go:build integration

package room_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/agent/room/conn"
	"touchline/agent/room/publish"
	"touchline/agent/sfu/sfutest"
)

// The environment that makes a camera of this test's own program.
const (
	cameraURL    = "ROOM_TEST_CAMERA_URL"
	cameraKey    = "ROOM_TEST_CAMERA_KEY"
	cameraSecret = "ROOM_TEST_CAMERA_SECRET"
	cameraName   = "ROOM_TEST_CAMERA_NAME"
)

func TestMain(m *testing.M) {
	if os.Getenv(cameraURL) != "" {
		if err := beCamera(); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(sfutest.Main(m))
}

// beCamera publishes synthetic VP8 until standard input ends.
func beCamera() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
		cancel()
	}()
	c, err := newTestCamera(publish.CameraOptions{
		URL:  os.Getenv(cameraURL),
		Keys: conn.Keys{APIKey: os.Getenv(cameraKey), APISecret: os.Getenv(cameraSecret)},
		Room: "match", Identity: os.Getenv(cameraName), LoopbackOnly: true, Log: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	return c.run(ctx, 640, 360)
}

// startCameraProcess publishes from a process of its own.
func startCameraProcess(t *testing.T, s *server, identity string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(),
		cameraURL+"="+s.URL(), cameraKey+"="+s.APIKey(), cameraSecret+"="+s.APISecret(), cameraName+"="+identity)
	_, err := cmd.StdinPipe() // open as long as this process lives
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	return cmd
}
