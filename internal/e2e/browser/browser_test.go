//go:build integration

package browser_test

import (
	"bytes"
	"context"
	"image/png"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/internal/e2e/browser"
)

const page = `<!doctype html><title>t</title><link rel="icon" href="data:,">
<style>body { background: white } @media (prefers-color-scheme: dark) { body { background: black } }</style>
<input id="in"><button id="go" onclick="this.textContent = 'went'">go</button>
<script>
  addEventListener('keydown', (e) => { if (e.key === 'Enter') window.entered = document.getElementById('in').value; });
  window.later = new Promise((done) => setTimeout(() => done('there'), 50));
  if (location.hash === '#bad') { console.error('sad', 7); setTimeout(() => { throw new Error('worse'); }); }
</script>`

func serve(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

func TestBrowser(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, err := browser.Open(ctx, browser.Options{
		Width: 390, Height: 844, Phone: true, Dark: true, Dir: t.TempDir(),
		Script: "window.before = document.getElementById('in') === null",
	})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.Navigate(serve(t)))

	word, err := browser.Eval[string](b, 5*time.Second, "window.later")
	require.NoError(t, err)
	require.Equal(t, "there", word)
	_, err = browser.Eval[int](b, 5*time.Second, "nowhere.at.all")
	require.ErrorContains(t, err, "nowhere")

	require.NoError(t, b.Until(5*time.Second, "window.before"))
	require.NoError(t, b.Click("#go"))
	require.NoError(t, b.Until(5*time.Second, "document.getElementById('go').textContent === 'went'"))
	require.NoError(t, b.Type("#in", "left wing\r"))
	require.NoError(t, b.Until(5*time.Second, "window.entered === 'left wing'"))
	require.ErrorContains(t, b.Until(time.Second, "false"), "still false")
	require.ErrorContains(t, b.Until(time.Second, "Promise.resolve(false)"), "still false")

	shot, err := b.Screenshot()
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	require.Equal(t, 390, img.Bounds().Dx())
	require.Equal(t, 844, img.Bounds().Dy())
	r, g, bl, _ := img.At(200, 800).RGBA()
	require.Zero(t, r+g+bl, "the dark look")

	require.Empty(t, b.Problems())
	require.NoError(t, b.Navigate(serve(t)+"#bad"))
	require.Eventually(t, func() bool { return len(b.Problems()) >= 2 }, 2*time.Minute, 20*time.Millisecond)
	require.Contains(t, b.Problems()[0], "sad 7")
	require.Contains(t, b.Problems()[1], "worse")
	require.NoError(t, b.Reload())

	require.NotEmpty(t, b.Processes())
	cancel()
	require.Eventually(t, func() bool { return len(b.Processes()) == 0 }, 2*time.Minute, 20*time.Millisecond,
		"the browser ends with its context")
	require.ErrorContains(t, b.Until(5*time.Second, "true"), "the browser exited")
}
