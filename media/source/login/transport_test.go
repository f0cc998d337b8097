package login_test

import (
	"crypto/md5"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Requests at the same time share a login, also where a nonce is valid once. Another host never gets it.
func TestTransport(t *testing.T) {
	var mu sync.Mutex
	camera := &server{challenges: []string{`Digest realm="cam", nonce="%s", qop="auth"`}, hash: md5.New, password: "p@ss", once: true}
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		challenges, _ := camera.check(r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"))
		mu.Unlock()
		switch {
		case challenges != nil:
			w.Header().Set("WWW-Authenticate", challenges[0])
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/away":
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		}
	}))
	defer s.Close()
	home, err := url.Parse(s.URL)
	require.NoError(t, err)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: newLogin("p@ss", "").Transport(base, home)}
	ask := func(path string) int {
		resp, err := client.Get(s.URL + path)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if got := ask(fmt.Sprintf("/%d?x=y", i)); got != http.StatusOK {
				t.Errorf("request %d: status %d", i, got)
			}
		})
	}
	all.Wait()
	require.Equal(t, http.StatusOK, ask("/moved"))
	require.Equal(t, http.StatusUnauthorized, ask("/away"))
	require.Equal(t, []string{""}, elsewhere)
}
