package hub_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"touchline/models/hub"
)

// Variables of the child process that is killed: the source and the destination of
// its download.
const (
	childEndpoint = "HUB_TEST_ENDPOINT"
	childDir      = "HUB_TEST_DIR"
)

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(childEndpoint); endpoint != "" {
		c, err := hub.New(hub.Options{Endpoint: endpoint, Token: token, Now: time.Now, Connections: 4, Chunk: chunk})
		if err != nil {
			panic(err)
		}
		r, err := c.Files(context.Background(), model, "", hub.ForConversion)
		if err != nil {
			panic(err)
		}
		if err := c.Pull(context.Background(), r, os.Getenv(childDir), nil); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A killed program leaves no incomplete file under its final name, and the next run
// does not download complete chunks again.
func TestKilled(t *testing.T) {
	p := publish(t)
	dir := t.TempDir()
	var answers atomic.Int32
	full := make(chan struct{})
	p.inject(func(_ http.ResponseWriter, r *http.Request, _ string, _ int) bool {
		if n := answers.Add(1); n == 10 {
			close(full)
			<-r.Context().Done()
			return true
		} else if n > 10 {
			<-r.Context().Done()
			return true
		}
		return false
	})
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childEndpoint+"="+p.api.URL, childDir+"="+dir)
	require.NoError(t, child.Start())
	<-full
	// Wait for the first saved state.
	require.Eventually(t, func() bool {
		states, err := os.ReadDir(dir)
		if err != nil {
			return false
		}
		return len(states) > 2
	}, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	p.untouched(dir)
	p.inject(nil)
	require.NoError(t, p.pull(t.Context(), dir))
	p.complete(dir)
	total := int64(0)
	for name, content := range p.files {
		if hub.ForConversion(name) {
			total += int64(len(content))
		}
	}
	require.Less(t, p.bytes.Load(), total+4*chunk, "what was in flight came twice, and no more")
}

// A program that is killed after it has named a file, but before it has removed
// the file's state, leaves the state behind.
func TestLeftoverState(t *testing.T) {
	p := publish(t)
	dir := t.TempDir()
	require.NoError(t, p.pull(t.Context(), dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json.part.json"), []byte("{}"), 0o600))
	require.NoError(t, p.pull(t.Context(), dir))
	p.complete(dir)
}
