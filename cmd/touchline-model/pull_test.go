package main

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/models"
)

const (
	hubModel  = "owner/model-1"
	asrModel  = "Qwen/Qwen3-ASR-0.6B"
	hubCommit = "0123456789abcdef0123456789abcdef01234567"
	hubToken  = "hf_secret"
)

// publish serves a folder with the hub's API.
func publish(t *testing.T, dir string) (server *httptest.Server, requests *atomic.Int64) {
	t.Helper()
	files := map[string][]byte{
		"README.md": []byte("not needed"), "modeling.py": []byte("not needed"), "assets/other.wav": []byte("not needed"),
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			files[name], err = os.ReadFile(path)
		}
		return err
	}))
	requests = new(atomic.Int64)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+hubToken {
			w.Header().Set("X-Error-Code", "GatedRepo")
			http.Error(w, "login first", http.StatusUnauthorized)
			return
		}
		path := strings.Replace(r.URL.Path, asrModel, hubModel, 1)
		if name, ok := strings.CutPrefix(path, "/api/models/"+hubModel+"/revision/"); ok && (name == "v1" || name == hubCommit) {
			var list []map[string]any
			for name, b := range files {
				entry := map[string]any{"rfilename": name, "size": len(b), "blobId": blob(b)}
				if strings.HasSuffix(name, ".safetensors") {
					sum := sha256.Sum256(b)
					entry["lfs"] = map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(b)}
				}
				list = append(list, entry)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"sha": hubCommit, "siblings": list})
			return
		}
		name, ok := strings.CutPrefix(path, "/"+hubModel+"/resolve/"+hubCommit+"/")
		b, has := files[name]
		if !ok || !has {
			http.NotFound(w, r)
			return
		}
		if n == 3 { // one answer breaks off
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			_, _ = w.Write(b[:len(b)/2])
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}))
	t.Cleanup(server.Close)
	return server, requests
}

// blob returns the git object id of a content.
func blob(b []byte) string {
	h := sha1.New()
	_, _ = fmt.Fprintf(h, "blob %d\x00", len(b))
	_, _ = h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

func TestPull(t *testing.T) {
	dir := t.TempDir()
	source, bundle, kept := filepath.Join(dir, "source"), filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.checkpoint")
	_, err := run(t, "models", "synth", "--shape", "tiny", "--speech", source, "--checkpoint")
	require.NoError(t, err)
	server, requests := publish(t, source)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_TOKEN", "wrong")
	pull := []string{"models", "pull", hubModel, bundle, "--revision", "v1", "--weights", "fp32", "--device", "cpu"}
	_, err = run(t, pull...)
	require.ErrorContains(t, err, "401")
	require.NoDirExists(t, bundle)

	t.Setenv("HF_TOKEN", hubToken)
	requests.Store(0)
	out, err := run(t, pull...)
	require.NoError(t, err)
	require.NotContains(t, out, hubToken)
	require.Contains(t, out, hubModel+" at "+hubCommit)
	require.Contains(t, out, kept)
	m := manifest(t, bundle)
	require.Equal(t, "model-1", m.Name)
	require.Equal(t, hubModel, m.Source.Path)
	require.Equal(t, hubCommit, m.Source.Revision)
	require.Contains(t, m.Source.Files, "config.json")
	require.False(t, m.Random)
	require.Contains(t, m.Source.Files, "assets/token2wav/flow.pt")
	require.NotNil(t, m.Dims.Speech)
	require.Empty(t, m.Missing)
	for _, name := range []string{"modeling.py", "assets/other.wav"} {
		require.NoFileExists(t, filepath.Join(kept, name), "what a conversion does not read stays there")
	}
	out, err = run(t, "models", "verify", bundle, "--ort", runtimeDir, "--device", "cpu")
	require.NoError(t, err)
	require.Contains(t, out, fmt.Sprintf("%d graphs ran once", len(m.Graphs)+2), "and both models of the voice")

	before := requests.Load()
	_, err = run(t, pull...)
	require.ErrorContains(t, err, "the folder is not empty")
	require.Equal(t, before, requests.Load(), "said before anything is downloaded")

	// Another bundle of the same commit: the kept files are not downloaded again.
	out, err = run(t, "models", "pull", hubModel, filepath.Join(dir, "second"), "--keep", kept, "--revision", hubCommit,
		"--weights", "int4", "--device", "cpu")
	require.NoError(t, err)
	require.Contains(t, out, hubCommit)
	require.Equal(t, before+1, requests.Load(), "only the list")
}

// A recognizer is published without tokenizer.json.
func TestPullRecognizer(t *testing.T) {
	dir := t.TempDir()
	source, bundle := filepath.Join(dir, "source"), filepath.Join(dir, "bundle")
	_, err := run(t, "models", "synth", "--shape", "tiny-asr", source, "--checkpoint")
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(source, "tokenizer.json"))
	server, _ := publish(t, source)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_TOKEN", hubToken)
	_, err = run(t, "models", "pull", asrModel, bundle, "--revision", "v1", "--device", "cpu")
	require.NoError(t, err)
	m := manifest(t, bundle)
	require.Equal(t, "Qwen3-ASR-0.6B", m.Name)
	require.Equal(t, models.TaskRecognition, m.Task)
	require.Contains(t, m.Source.Files, "vocab.json")
	require.FileExists(t, filepath.Join(bundle, "tokenizer.json"))
	out, err := run(t, "models", "verify", bundle, "--ort", runtimeDir, "--device", "cpu")
	require.NoError(t, err)
	require.Contains(t, out, "3 graphs ran once")
}

// TestPullSight: a folder without the packages is named; other models need a folder.
func TestPullSight(t *testing.T) {
	from := t.TempDir()
	_, err := run(t, "models", "pull", "sight", filepath.Join(t.TempDir(), "sight"), "--from", from)
	require.EqualError(t, err, "make the bundle of sight: rapidocr-3.10.0-py3-none-any.whl: no such package in "+from)
	_, err = run(t, "models", "pull", "Qwen/Qwen3-ASR-0.6B")
	require.EqualError(t, err, "expected the folder of the bundle")
}
