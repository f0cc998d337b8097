package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxListing is the maximum size of a revision's file list.
const maxListing = 64 << 20

// maxFile is the maximum size of one file: 4 TB.
const maxFile = 1 << 42

// Revision is one state of a model's folder.
type Revision struct {
	Model  string // "owner/name"
	Commit string // 40 hex digits; downloads use this commit
	Files  []File
}

// File is one published file.
type File struct {
	Path string // relative to the folder, with slashes
	Size int64
	// SHA256 is the content hash of a large file; other files have Blob.
	SHA256 string
	// Blob is the git object id: the SHA-1 of "blob", size and content.
	Blob string
}

// listing is the response of /api/models/{name}/revision/{revision}?blobs=true.
type listing struct {
	SHA      string    `json:"sha"`
	Siblings []sibling `json:"siblings"`
}

type sibling struct {
	Name string `json:"rfilename"`
	Size *int64 `json:"size"`
	Blob string `json:"blobId"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   *int64 `json:"size"`
	} `json:"lfs"`
}

// file converts an entry. The size is -1 if the list lacks it.
func (s sibling) file() File {
	f := File{Path: s.Name, Size: -1, Blob: s.Blob}
	if s.Size != nil {
		f.Size = *s.Size
	}
	if s.LFS != nil {
		f.Blob, f.SHA256 = "", s.LFS.SHA256 // the object is a pointer, not the content
		if s.LFS.Size != nil {
			f.Size = *s.LFS.Size
		}
	}
	return f
}

// Files lists a revision (branch, tag or commit; "main" if empty) of a model.
// want selects the files; nil selects all. Sizes and checksums that are missing
// in the list are requested file by file.
func (c *Client) Files(ctx context.Context, model, revision string, want func(path string) bool) (Revision, error) {
	r, err := c.files(ctx, model, revision, want)
	if err != nil {
		return r, fmt.Errorf("list the files of %s: %w", model, err)
	}
	return r, nil
}

func (c *Client) files(ctx context.Context, model, revision string, want func(path string) bool) (Revision, error) {
	if !validModel(model) {
		return Revision{}, fmt.Errorf("model %.100q: must be owner/name", model)
	}
	revision = cmp.Or(revision, "main")
	l, err := c.list(ctx, model, revision)
	if err != nil {
		return Revision{}, err
	}
	r := Revision{Model: model, Commit: l.SHA}
	seen := map[string]bool{}
	for _, s := range l.Siblings {
		if want != nil && !want(s.Name) {
			continue
		}
		if !safePath(s.Name) {
			return r, fmt.Errorf("rfilename: %.200q is outside the folder", s.Name)
		}
		if seen[s.Name] {
			return r, fmt.Errorf("rfilename: %q is listed twice", s.Name)
		}
		seen[s.Name] = true
		f := s.file()
		if f.Size < 0 || f.SHA256 == "" && f.Blob == "" {
			if err := c.complete(ctx, r, &f); err != nil {
				return r, fmt.Errorf("%s: %w", f.Path, err)
			}
		}
		if err := f.check(); err != nil {
			return r, err
		}
		r.Files = append(r.Files, f)
	}
	return r, nil
}

// list requests the file list of a revision.
func (c *Client) list(ctx context.Context, model, revision string) (l listing, err error) {
	address := c.endpoint.JoinPath("api", "models", model, "revision").String() + "/" + url.PathEscape(revision) + "?blobs=true"
	err = c.try(ctx, func(ctx context.Context) (bool, error) {
		resp, err := c.send(ctx, http.MethodGet, address, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxListing+1))
		if err != nil {
			return false, err
		}
		if len(body) > maxListing {
			return false, &permanentError{fmt.Errorf("the file list is larger than %d MB", maxListing>>20)}
		}
		l = listing{}
		if err := json.Unmarshal(body, &l); err != nil {
			return false, fmt.Errorf("the file list is not valid JSON: %w", err)
		}
		return false, nil
	})
	switch {
	case err != nil:
	case !isHex(l.SHA, 40):
		err = fmt.Errorf("sha: expected a commit, got %.60q", l.SHA)
	case isHex(revision, 40) && !strings.EqualFold(l.SHA, revision):
		err = fmt.Errorf("sha: expected commit %s, got %s", revision, l.SHA)
	}
	return l, err
}

func (f File) check() error {
	if f.Size < 0 || f.Size > maxFile {
		return fmt.Errorf("%s: size: expected 0 to %d bytes, got %d", f.Path, int64(maxFile), f.Size)
	}
	if f.SHA256 != "" && !isHex(f.SHA256, 64) || f.SHA256 == "" && !isHex(f.Blob, 40) {
		return fmt.Errorf("%s: expected a SHA-256 or a git object id, got %.100q", f.Path, f.SHA256+f.Blob)
	}
	return nil
}

// complete requests a file's size and checksum. The hub sends them in the headers
// of its first response, before any redirect.
func (c *Client) complete(ctx context.Context, r Revision, f *File) error {
	return c.try(ctx, func(ctx context.Context) (bool, error) {
		// A ranged GET, because some mirrors do not support HEAD.
		resp, err := c.send(ctx, http.MethodGet, c.address(r, f.Path), http.Header{"Range": {"bytes=0-0"}, "Accept-Encoding": {"identity"}})
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		f.Size = resp.ContentLength
		if resp.StatusCode == http.StatusPartialContent {
			_, _, f.Size, _ = contentRange(resp.Header.Get("Content-Range"))
		}
		for hop := resp; hop != nil; hop = hop.Request.Response {
			for _, key := range []string{"X-Linked-Etag", "Etag"} {
				tag := strings.Trim(strings.TrimPrefix(hop.Header.Get(key), "W/"), `"`)
				switch {
				case isHex(tag, 64):
					f.SHA256, f.Blob = tag, ""
				case isHex(tag, 40) && f.SHA256 == "":
					f.Blob = tag
				}
			}
			if n, err := strconv.ParseInt(hop.Header.Get("X-Linked-Size"), 10, 64); err == nil {
				f.Size = n
			}
		}
		if f.SHA256 == "" && f.Blob == "" {
			return false, &permanentError{errors.New("the server sends no checksum")}
		}
		return false, nil
	})
}

// address returns the URL of a file at the revision's commit.
func (c *Client) address(r Revision, file string) string {
	return c.endpoint.JoinPath(r.Model, "resolve", r.Commit, file).String()
}

func validModel(name string) bool {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$`).MatchString(name) &&
		len(name) <= 200 && !strings.Contains(name, "..")
}

// safePath reports whether name stays within the folder and clear of this package's own files.
func safePath(name string) bool {
	return filepath.IsLocal(name) && path.Clean(name) == name && name != "." && !strings.ContainsAny(name, "\\:\x00") &&
		!strings.HasSuffix(name, partSuffix) && !strings.HasSuffix(name, stateSuffix)
}

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for _, r := range s {
		if !strings.ContainsRune("0123456789abcdefABCDEF", r) {
			return false
		}
	}
	return true
}

// ForConversion reports whether a converter reads the file: configs, tokenizer,
// weights and licence at the root of the folder, and the voice in assets. It
// excludes code, other assets and weights in other formats.
func ForConversion(file string) bool {
	switch file {
	case "config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json",
		"vocab.json", "merges.txt", "chat_template.jinja", "model.safetensors", "model.safetensors.index.json",
		"assets/token2wav/flow.pt", "assets/token2wav/hift.pt", "assets/token2wav/flow.yaml", "assets/token2wav/campplus.onnx",
		"assets/token2wav/speech_tokenizer_v2_25hz.onnx", "assets/HT_ref_audio.wav":
		return true
	}
	if strings.Contains(file, "/") {
		return false
	}
	shard, _ := path.Match("model-*-of-*.safetensors", file)
	return shard || strings.HasPrefix(file, "LICENSE")
}

// Bytes returns the size of all files.
func (r Revision) Bytes() (n int64) {
	for _, f := range r.Files {
		n += f.Size
	}
	return n
}
