package hub_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"touchline/models/hub"
)

const (
	model  = "owner/model"
	commit = "0123456789abcdef0123456789abcdef01234567"
	token  = "hf_secret"
	chunk  = 64 << 10
)

// published is a hub with one model. As on the real hub, large files are on another
// host.
type published struct {
	t       *testing.T
	files   map[string][]byte
	api, at *httptest.Server

	bare bool // the list lacks sizes and checksums
	// fault can respond to a request for a file's content. n counts the requests
	// for this file from 1.
	fault func(w http.ResponseWriter, r *http.Request, name string, n int) (handled bool)
	// refuse can respond to requests to the endpoint.
	refuse func(w http.ResponseWriter, r *http.Request) (handled bool)

	mu       sync.Mutex
	requests map[string]int
	ranges   map[string][]string
	bytes    atomic.Int64
}

func large(name string) bool { return strings.HasSuffix(name, ".safetensors") }

func publish(t *testing.T) *published {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	p := &published{t: t, requests: map[string]int{}, ranges: map[string][]string{}, files: map[string][]byte{
		"config.json":                      []byte(`{"hidden_size":256}`),
		"tokenizer.json":                   random(3*chunk + 17),
		"model-00001-of-00002.safetensors": random(11*chunk + 5),
		"model-00002-of-00002.safetensors": random(4 * chunk),
		"LICENSE":                          {},
		"assets/voice.wav":                 random(100),
		"modeling.py":                      random(100),
	}}
	p.at = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("the token came to another host: %s", r.URL)
		}
		p.content(w, r, strings.TrimPrefix(r.URL.Path, "/store/"))
	}))
	p.api = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(func() { p.api.Close(); p.at.Close() })
	return p
}

func (p *published) serve(w http.ResponseWriter, r *http.Request) {
	if p.refuse != nil && p.refuse(w, r) {
		return
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+token {
		p.t.Errorf("%s: Authorization is %q", r.URL, got)
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/models/"+model+"/revision/"); ok {
		if name != "main" && name != commit && name != "refs/pr/1" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(p.list())
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/"+model+"/resolve/"+commit+"/")
	if _, has := p.files[name]; !ok || !has {
		http.NotFound(w, r)
		return
	}
	if large(name) {
		w.Header().Set("X-Linked-Etag", `"`+sha256Of(p.files[name])+`"`)
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(p.files[name])))
		http.Redirect(w, r, p.at.URL+"/store/"+name+"?signature=x", http.StatusFound)
		return
	}
	w.Header().Set("ETag", `"`+blobOf(p.files[name])+`"`)
	p.content(w, r, name)
}

func (p *published) list() any {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		Name string `json:"rfilename"`
		Size *int   `json:"size,omitempty"`
		Blob string `json:"blobId,omitempty"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	var list []sibling
	for name, content := range p.files {
		s := sibling{Name: name}
		if n := len(content); !p.bare {
			s.Size, s.Blob = &n, blobOf(content)
			if large(name) {
				s.LFS = &lfs{sha256Of(content), n}
			}
		}
		list = append(list, s)
	}
	return map[string]any{"sha": commit, "siblings": list}
}

// inject sets the fault of the next requests.
func (p *published) inject(fault func(w http.ResponseWriter, r *http.Request, name string, n int) (handled bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

func (p *published) content(w http.ResponseWriter, r *http.Request, name string) {
	p.mu.Lock()
	p.requests[name]++
	n, fault := p.requests[name], p.fault
	p.ranges[name] = append(p.ranges[name], r.Header.Get("Range"))
	p.mu.Unlock()
	if fault != nil && fault(w, r, name, n) {
		return
	}
	http.ServeContent(counted{w, &p.bytes}, r, "", time.Time{}, bytes.NewReader(p.files[name]))
}

type counted struct {
	http.ResponseWriter

	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}

func sha256Of(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func blobOf(b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(s[:])
}

func (p *published) client(change ...func(o *hub.Options)) *hub.Client {
	p.t.Helper()
	o := hub.Options{
		Endpoint: p.api.URL + "/", Token: token, Now: time.Now,
		Connections: 4, Chunk: chunk, Attempts: 4, Backoff: time.Millisecond, Stall: 5 * time.Second,
	}
	for _, f := range change {
		f(&o)
	}
	c, err := hub.New(o)
	require.NoError(p.t, err)
	p.t.Cleanup(c.Close)
	return c
}

func (p *published) pull(ctx context.Context, dir string, change ...func(o *hub.Options)) error {
	p.t.Helper()
	c := p.client(change...)
	r, err := c.Files(ctx, model, "main", hub.ForConversion)
	if err != nil {
		return err
	}
	return c.Pull(ctx, r, dir, nil)
}

// complete asserts that the folder holds the wanted files and nothing else.
func (p *published) complete(dir string) {
	p.t.Helper()
	var names []string
	require.NoError(p.t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	}))
	require.Equal(p.t, []string{
		"LICENSE", "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json",
	}, names)
	for _, name := range names {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(p.t, err)
		require.True(p.t, bytes.Equal(p.files[name], got), name)
	}
}

// untouched asserts that no file has its final name with other content.
func (p *published) untouched(dir string) {
	p.t.Helper()
	for name, want := range p.files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			require.True(p.t, bytes.Equal(want, got), name)
		}
	}
}

func TestPull(t *testing.T) {
	p := publish(t)
	c := p.client()
	r, err := c.Files(t.Context(), model, "", hub.ForConversion)
	require.NoError(t, err)
	require.Equal(t, commit, r.Commit)
	require.Len(t, r.Files, 5)
	for _, f := range r.Files {
		require.NotEqual(t, "assets/voice.wav", f.Path)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	var last hub.Progress
	require.NoError(t, c.Pull(t.Context(), r, dir, func(g hub.Progress) {
		require.GreaterOrEqual(t, g.Done, last.Done)
		require.Equal(t, r.Bytes(), g.Total)
		last = g
	}))
	p.complete(dir)
	require.Equal(t, r.Bytes(), last.Done)
	require.Equal(t, r.Bytes(), last.Verified)
	require.Equal(t, 5, last.Files)
	require.Zero(t, last.ETA)
	require.Equal(t, r.Bytes(), p.bytes.Load(), "each byte once")
	require.Len(t, p.ranges["model-00001-of-00002.safetensors"], 12)

	// A second run transfers only a file that was damaged in between.
	require.NoError(t, c.Pull(t.Context(), r, dir, nil))
	require.Equal(t, r.Bytes(), p.bytes.Load())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), bytes.Repeat([]byte{'x'}, len(p.files["config.json"])), 0o600))
	require.NoError(t, c.Pull(t.Context(), r, dir, nil))
	p.complete(dir)
	require.Equal(t, r.Bytes()+int64(len(p.files["config.json"])), p.bytes.Load())
}

func TestRevisions(t *testing.T) {
	p := publish(t)
	c := p.client()
	for _, revision := range []string{"main", commit, "refs/pr/1"} {
		r, err := c.Files(t.Context(), model, revision, nil)
		require.NoError(t, err)
		require.Equal(t, commit, r.Commit)
		require.Len(t, r.Files, 7)
	}
	_, err := c.Files(t.Context(), model, "v2", nil)
	require.ErrorContains(t, err, "404 Not Found: no such model, revision or file")
	for _, name := range []string{"", "../x", "a/b/c", "a b", "/a", "a/..", "https://x"} {
		_, err := c.Files(t.Context(), name, "", nil)
		require.ErrorContains(t, err, "must be owner/name", name)
	}
}

// A mirror lists names only; the rest is requested file by file.
func TestBareList(t *testing.T) {
	p := publish(t)
	p.bare = true
	delete(p.files, "LICENSE")
	dir := t.TempDir()
	require.NoError(t, p.pull(t.Context(), dir))
	p.files["LICENSE"] = nil
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LICENSE"), nil, 0o600))
	p.complete(dir)
}

// Faults that a download survives.
func TestFaults(t *testing.T) {
	const shard = "model-00001-of-00002.safetensors"
	drop := func() { panic(http.ErrAbortHandler) }
	header := func(w http.ResponseWriter, r *http.Request, size int) (from, to int) {
		_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		if err != nil {
			panic(err)
		}
		to++
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
		w.Header().Set("Content-Length", strconv.Itoa(to-from))
		return from, to
	}
	for _, tt := range []struct {
		name  string
		fault func(p *published) func(w http.ResponseWriter, r *http.Request, name string, n int) bool
	}{
		{"the connection drops in the middle of every first answer", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			var mu sync.Mutex
			seen := map[string]bool{}
			return func(w http.ResponseWriter, r *http.Request, name string, _ int) bool {
				mu.Lock()
				chunkID := name + r.Header.Get("Range")
				first := !seen[chunkID] && len(p.files[name]) > 0
				seen[chunkID] = true
				mu.Unlock()
				if first {
					from, to := header(w, r, len(p.files[name]))
					w.WriteHeader(http.StatusPartialContent)
					_, _ = w.Write(p.files[name][from : from+(to-from)/2])
					_ = http.NewResponseController(w).Flush()
					drop()
				}
				return false
			}
		}},
		{"the connection drops before any answer", func(*published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(_ http.ResponseWriter, _ *http.Request, _ string, n int) bool {
				if n < 9 && n%3 == 1 {
					drop()
				}
				return false
			}
		}},
		{"ranges are ignored", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, _ *http.Request, name string, _ int) bool {
				_, _ = w.Write(p.files[name])
				return true
			}
		}},
		{"ranges are ignored, and the connection drops", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, _ *http.Request, name string, n int) bool {
				content := p.files[name]
				w.Header().Set("Content-Length", strconv.Itoa(len(content)))
				_, _ = w.Write(content[:min(len(content), n*3*chunk)])
				if n*3*chunk < len(content) {
					drop()
				}
				return true
			}
		}},
		{"ranges are ignored, without a length", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, _ *http.Request, name string, n int) bool {
				_ = http.NewResponseController(w).Flush()
				content := p.files[name]
				if n == 1 {
					content = content[:len(content)/2] // a clean end, too early
				}
				_, _ = w.Write(content)
				return true
			}
		}},
		{"another range comes now and then", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, r *http.Request, name string, n int) bool {
				if !large(name) || n > 9 || n%4 != 1 {
					return false
				}
				from, to := header(w, r, len(p.files[name]))
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+1, to, len(p.files[name])))
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(p.files[name][from:to])
				return true
			}
		}},
		{"less than the range comes", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, r *http.Request, name string, _ int) bool {
				if !large(name) {
					return false
				}
				from, to := header(w, r, len(p.files[name]))
				to = from + (to-from+1)/2
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(p.files[name])))
				w.Header().Set("Content-Length", strconv.Itoa(to-from))
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(p.files[name][from:to])
				return true
			}
		}},
		{"a wrong length", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, r *http.Request, name string, n int) bool {
				if !large(name) || n != 2 {
					return false
				}
				_, to := header(w, r, len(p.files[name]))
				w.Header().Set("Content-Length", strconv.Itoa(to+5))
				w.WriteHeader(http.StatusPartialContent)
				return true
			}
		}},
		{"wrong bytes the first time", func(p *published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, r *http.Request, name string, n int) bool {
				if name != shard || n != 3 {
					return false
				}
				from, to := header(w, r, len(p.files[name]))
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(make([]byte, to-from))
				return true
			}
		}},
		{"busy, with Retry-After", func(*published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, _ *http.Request, name string, n int) bool {
				if n > 2 {
					return false
				}
				if name == shard && n == 1 {
					w.Header().Set("Retry-After", "1")
				}
				w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[n-1])
				return true
			}
		}},
		{"a signed address that expired", func(*published) func(http.ResponseWriter, *http.Request, string, int) bool {
			return func(w http.ResponseWriter, _ *http.Request, name string, n int) bool {
				if !large(name) || n > 10 || n%4 != 2 {
					return false
				}
				w.WriteHeader(http.StatusForbidden)
				return true
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := publish(t)
			p.inject(tt.fault(p))
			dir := t.TempDir()
			require.NoError(t, p.pull(t.Context(), dir))
			p.complete(dir)
		})
	}
}

// Failed is called for each failed attempt with the delay of the next one.
func TestFailed(t *testing.T) {
	p := publish(t)
	p.inject(func(w http.ResponseWriter, _ *http.Request, name string, n int) bool {
		if name != "config.json" || n > 1 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	var failed []error
	require.NoError(t, p.pull(t.Context(), t.TempDir(), func(o *hub.Options) {
		o.Failed = func(err error, wait time.Duration) {
			assert.Equal(t, time.Second, wait)
			failed = append(failed, err)
		}
	}))
	require.Len(t, failed, 1)
	require.ErrorContains(t, failed[0], "config.json: 503 Service Unavailable")
}

// Faults that end a download: the error names the file and the cause, and no wrong
// file has its final name.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(p *published)
		want   []string
	}{
		{"unauthorised", func(p *published) {
			p.refuse = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		}, []string{"401 Unauthorized", "HF_TOKEN"}},
		{"gated", func(p *published) {
			p.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/resolve/") {
					w.WriteHeader(http.StatusForbidden)
					return true
				}
				return false
			}
		}, []string{"403 Forbidden", "accept the model's terms"}},
		{"gone", func(p *published) {
			p.inject(func(w http.ResponseWriter, _ *http.Request, name string, _ int) bool {
				if name == "tokenizer.json" {
					w.WriteHeader(http.StatusNotFound)
				}
				return name == "tokenizer.json"
			})
		}, []string{"tokenizer.json", "404 Not Found"}},
		{"always busy", func(p *published) {
			p.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		}, []string{"after 4 attempts", "503 Service Unavailable"}},
		{"busy for a day", func(p *published) {
			p.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Retry-After", "86400")
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
		}, []string{"the server requests a delay of 24h0m0s", "429"}},
		{"wrong bytes", func(p *published) {
			p.inject(func(w http.ResponseWriter, r *http.Request, name string, _ int) bool {
				if name != "config.json" {
					return false
				}
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(bytes.ToUpper(p.files[name])))
				return true
			})
		}, []string{"config.json: checksum: expected"}},
		{"content that changes between requests", func(p *published) {
			p.inject(func(w http.ResponseWriter, r *http.Request, name string, n int) bool {
				if !large(name) || n%2 == 0 {
					return false
				}
				other := bytes.Clone(p.files[name])
				for i := range other {
					other[i] ^= 1
				}
				w.Header().Set("ETag", strconv.Itoa(n))
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(other))
				return true
			})
		}, []string{"of-00002.safetensors: checksum: expected"}},
		{"another size", func(p *published) {
			p.inject(func(w http.ResponseWriter, r *http.Request, name string, _ int) bool {
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(append(bytes.Clone(p.files[name]), 'x')))
				return true
			})
		}, []string{"got Content-Range"}},
		{"less than listed", func(p *published) {
			p.inject(func(w http.ResponseWriter, r *http.Request, name string, _ int) bool {
				content := p.files[name]
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content[:len(content)/8]))
				return true
			})
		}, []string{"download owner/model"}},
		{"ranges known to the first request only", func(p *published) {
			p.inject(func(w http.ResponseWriter, _ *http.Request, name string, n int) bool {
				if n == 1 || name == "LICENSE" {
					return false
				}
				_, _ = w.Write(p.files[name])
				return true
			})
		}, []string{"the server ignores ranges"}},
		{"garbage in Content-Range", func(p *published) {
			p.inject(func(w http.ResponseWriter, _ *http.Request, _ string, _ int) bool {
				w.Header().Set("Content-Range", "bytes 5-3/-1")
				w.WriteHeader(http.StatusPartialContent)
				return true
			})
		}, []string{"Content-Range: expected bytes"}},
		{"compressed", func(p *published) {
			p.inject(func(w http.ResponseWriter, _ *http.Request, name string, _ int) bool {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(p.files[name])
				return true
			})
		}, []string{"Content-Encoding"}},
		{"redirects in circles", func(p *published) {
			p.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, r.URL.Path, http.StatusFound)
				return true
			}
		}, []string{"redirects"}},
		{"a list that is no JSON", func(p *published) {
			p.refuse = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("<html>")); return true }
		}, []string{"list the files of owner/model", "not valid JSON"}},
		{"a list without a commit", func(p *published) {
			p.refuse = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("{}")); return true }
		}, []string{"sha: expected a commit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := publish(t)
			tt.change(p)
			dir := t.TempDir()
			err := p.pull(t.Context(), dir)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), token)
			require.NotContains(t, err.Error(), "signature")
			p.untouched(dir)
		})
	}
}

// Valid and malicious lists.
func TestHostileLists(t *testing.T) {
	for list, want := range map[string]string{
		`{"sha":"` + commit + `","siblings":[{"rfilename":"../x","size":1,"blobId":"` + commit + `"}]}`:                                                   "outside the folder",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"/x","size":1,"blobId":"` + commit + `"}]}`:                                                     "outside the folder",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"a\\b","size":1,"blobId":"` + commit + `"}]}`:                                                   "outside the folder",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"x.part","size":1,"blobId":"` + commit + `"}]}`:                                                 "outside the folder",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"x","size":9223372036854775807,"blobId":"` + commit + `"}]}`:                                    "x: size: expected",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"x","size":1,"blobId":"zz"}]}`:                                                                  "x: expected a SHA-256 or a git object id",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"x","size":1,"blobId":"` + commit + `"},{"rfilename":"x","size":1,"blobId":"` + commit + `"}]}`: "listed twice",
		`{"sha":"ffffffffffffffffffffffffffffffffffffffff","siblings":[]}`:                                                                                "expected commit " + commit,
	} {
		p := publish(t)
		p.refuse = func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte(list)); return true }
		_, err := p.client().Files(t.Context(), model, commit, nil)
		require.ErrorContains(t, err, want)
	}
}

// After interruptions at many points a download resumes: no complete chunk is
// downloaded twice, and no incomplete file has its final name.
func TestResume(t *testing.T) {
	p := publish(t)
	dir := t.TempDir()
	total := 0
	for name, content := range p.files {
		if hub.ForConversion(name) {
			total += len(content)
		}
	}
	runs := 0
	for ; ; runs++ {
		require.Less(t, runs, 40)
		ctx, cancel := context.WithCancelCause(t.Context())
		var answers atomic.Int32
		p.inject(func(http.ResponseWriter, *http.Request, string, int) bool {
			if answers.Add(1) == 4 {
				cancel(errors.New("interrupted"))
			}
			return false
		})
		err := p.pull(ctx, dir)
		cancel(nil)
		p.untouched(dir)
		if err == nil {
			break
		}
		require.ErrorContains(t, err, "interrupted")
	}
	require.Greater(t, runs, 3)
	p.complete(dir)
	// Only ranges in flight at an interruption are downloaded twice.
	require.Less(t, p.bytes.Load(), int64(total+runs*4*chunk))
}

// A partial download that does not match the file is discarded.
func TestDamagedState(t *testing.T) {
	const name = "tokenizer.json"
	p := publish(t)
	good := func(have string, size int) string {
		return fmt.Sprintf(`{"hash":%q,"size":%d,"chunk":%d,"have":%s}`, blobOf(p.files[name]), size, chunk, have)
	}
	size := len(p.files[name])
	for _, tt := range []struct{ name, state string }{
		{"no JSON", "{"},
		{"negative", good("[-1,0,0,0]", size)},
		{"too much", good("[65537,0,0,0]", size)},
		{"overflow", good("[9223372036854775807,1,0,0]", size)},
		{"too few", good("[0]", size)},
		{"another size", good("[0,0,0,0]", size+1)},
		{"no chunk", fmt.Sprintf(`{"hash":%q,"size":%d,"chunk":0,"have":[]}`, blobOf(p.files[name]), size)},
		{"more than there is", good("[65536,65536,65536,17]", size)},
		{"wrong bytes", good("[10,0,0,0]", size)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+".part"), []byte("0123456789"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+".part.json"), []byte(tt.state), 0o600))
			p.t = t
			require.NoError(t, p.pull(t.Context(), dir))
			p.complete(dir)
		})
	}
}

func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name string
		hang func(p *published, hang func(r *http.Request))
	}{
		{"while the list is silent", func(p *published, hang func(r *http.Request)) {
			p.refuse = func(_ http.ResponseWriter, r *http.Request) bool { hang(r); return true }
		}},
		{"while a body is silent", func(p *published, hang func(r *http.Request)) {
			p.inject(func(w http.ResponseWriter, r *http.Request, _ string, _ int) bool {
				_ = http.NewResponseController(w).Flush()
				hang(r)
				return true
			})
		}},
		{"while it waits to try again", func(p *published, hang func(r *http.Request)) {
			p.inject(func(w http.ResponseWriter, _ *http.Request, _ string, _ int) bool {
				w.Header().Set("Retry-After", "300")
				w.WriteHeader(http.StatusTooManyRequests)
				hang(nil)
				return true
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := publish(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			reached := make(chan struct{}, 100)
			tt.hang(p, func(r *http.Request) {
				reached <- struct{}{}
				if r != nil {
					<-r.Context().Done()
				}
			})
			done := make(chan error, 1)
			go func() { done <- p.pull(ctx, t.TempDir()) }()
			<-reached
			cancel(errors.New("the user left"))
			require.ErrorContains(t, <-done, "the user left")
		})
	}
}

// A silent connection is closed and the request repeated.
func TestStall(t *testing.T) {
	p := publish(t)
	p.inject(func(w http.ResponseWriter, r *http.Request, name string, n int) bool {
		if name == "tokenizer.json" && n == 2 {
			w.Header().Set("Content-Range", "bytes 0-0/1")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		return false
	})
	dir := t.TempDir()
	require.NoError(t, p.pull(t.Context(), dir, func(o *hub.Options) { o.Stall = 2 * time.Second }))
	p.complete(dir)

	p.inject(func(_ http.ResponseWriter, r *http.Request, _ string, _ int) bool {
		<-r.Context().Done()
		return true
	})
	err := p.pull(t.Context(), t.TempDir(), func(o *hub.Options) { o.Stall, o.Attempts = 50*time.Millisecond, 2 })
	require.ErrorContains(t, err, "the connection is silent")
}

func TestNoRoom(t *testing.T) {
	p := publish(t)
	dir := t.TempDir()
	err := p.pull(t.Context(), dir, func(o *hub.Options) { o.Free = func(string) (int64, error) { return 65 << 20, nil } })
	require.ErrorContains(t, err, "GB, 0.07 GB are free")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Zero(t, p.bytes.Load())
}

func TestTwoAtOnce(t *testing.T) {
	p := publish(t)
	dir := t.TempDir()
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.inject(func(http.ResponseWriter, *http.Request, string, int) bool {
		once.Do(func() { close(entered); <-leave })
		return false
	})
	done := make(chan error, 1)
	go func() { done <- p.pull(t.Context(), dir) }()
	<-entered
	require.ErrorContains(t, p.pull(t.Context(), dir), dir+": in use by another download")
	close(leave)
	require.NoError(t, <-done)
	p.complete(dir)
}

func TestOptions(t *testing.T) {
	for _, endpoint := range []string{"ftp://x", "huggingface.co", "https://user:pw@x", "http://", "http://x?y", "://"} {
		_, err := hub.New(hub.Options{Endpoint: endpoint, Now: time.Now})
		require.ErrorContains(t, err, "endpoint", endpoint)
	}
	_, err := hub.New(hub.Options{})
	require.ErrorContains(t, err, "Now is nil")
	c, err := hub.New(hub.Options{Now: time.Now})
	require.NoError(t, err)
	c.Close()
	require.Error(t, c.Pull(t.Context(), hub.Revision{Model: "a/b", Commit: "main"}, t.TempDir(), nil))
	require.ErrorContains(t, c.Pull(t.Context(), hub.Revision{Model: "a/b", Commit: commit, Files: []hub.File{{Path: "../x", Blob: commit}}}, t.TempDir(), nil), "outside")
	require.ErrorContains(t, c.Pull(t.Context(), hub.Revision{Model: "a/b", Commit: commit, Files: []hub.File{{Path: "x"}}}, t.TempDir(), nil), "SHA-256")
}

// A redirect from https to http is refused.
func TestNoDowngrade(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("was asked in the clear") }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusFound)
	}))
	defer secure.Close()
	c, err := hub.New(hub.Options{Endpoint: secure.URL, Now: time.Now, Transport: secure.Client().Transport})
	require.NoError(t, err)
	_, err = c.Files(t.Context(), model, "", nil)
	require.ErrorContains(t, err, "redirect from https to http")
}

// Rate and remaining time with a fake clock.
func TestRate(t *testing.T) {
	p := publish(t)
	var mu sync.Mutex
	now := time.Unix(0, 0)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
	c := p.client(func(o *hub.Options) { o.Now = clock })
	r, err := c.Files(t.Context(), model, "", hub.ForConversion)
	require.NoError(t, err)
	release := make(chan struct{})
	p.inject(func(_ http.ResponseWriter, _ *http.Request, name string, n int) bool {
		if name == "model-00001-of-00002.safetensors" && n == 8 {
			<-release
		}
		return false
	})
	seen := false
	require.NoError(t, c.Pull(t.Context(), r, t.TempDir(), func(g hub.Progress) {
		if g.Done > r.Bytes()/3 && g.Done < r.Bytes() && g.Rate > 0 && !seen {
			seen = true
			require.Positive(t, g.ETA)
			left := float64(g.Total - g.Done)
			require.InEpsilon(t, left/g.Rate, g.ETA.Seconds(), 0.01)
			close(release)
		}
	}))
	require.True(t, seen)
}
