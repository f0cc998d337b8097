//go:build builtinassets

package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/console"
)

// TestPageInTheProgram: built with the page inside, no folder is needed.
func TestPageInTheProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	r := open(t, console.Options{WebDir: ownPage})
	for _, path := range []string{"/", "/static/app.js", "/static/vendor/livekit-client.js"} {
		a := r.ask("GET", path, "")
		require.Equal(t, http.StatusOK, a.status, path)
		require.NotEmpty(t, a.body)
	}
}
