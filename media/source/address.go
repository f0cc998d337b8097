package source

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Kind of a source.
type Kind string

// The kinds that an address can name.
const (
	RTSP   Kind = "rtsp"
	HTTP   Kind = "http" // MJPEG, single pictures, video files or HLS; the answer decides
	File   Kind = "file"
	Webcam Kind = "webcam"
)

// Address of a source. Its String has no secrets. The zero value is no address.
type Address struct {
	Kind Kind
	// URL with the secrets, without a user when there is none; nil for files and devices.
	URL *url.URL
	// Literal is the user and password as typed, nil where they equal the URL's: a "%" may be part of a password.
	Literal *url.Userinfo
	// Path of a file or device.
	Path string
}

// maxAddress bounds an address, in bytes.
const maxAddress = 4096

// ParseAddress reads a URL (rtsp, rtsps, http, https, file), a device
// (/dev/video0, webcam, webcam:NAME) or the path of a file. Passwords may contain
// characters that a URL has to escape, except "/". No error repeats the address.
func ParseAddress(text string) (Address, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Address{}, errors.New("expected a camera's URL, a device or a file, got nothing")
	case len(text) > maxAddress:
		return Address{}, fmt.Errorf("expected an address of at most %d bytes, got %d", maxAddress, len(text))
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return Address{}, errors.New("expected an address or a file without line breaks and other control characters, got some; rename the file")
	case text == "webcam":
		return Address{Kind: Webcam}, nil
	case strings.HasPrefix(text, "webcam:"):
		return Address{Kind: Webcam, Path: strings.TrimPrefix(text, "webcam:")}, nil
	case strings.HasPrefix(text, "/dev/video"), strings.HasPrefix(text, "/dev/v4l/"):
		return Address{Kind: Webcam, Path: filepath.Clean(text)}, nil
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Address{Kind: File, Path: filepath.Clean(text)}, nil
	}
	kind := RTSP
	switch scheme = strings.ToLower(scheme); scheme {
	case "rtsp", "rtsps":
	case "http", "https":
		kind = HTTP
	case "file":
		path, err := url.PathUnescape(strings.TrimPrefix(rest, "localhost"))
		if err != nil || !filepath.IsAbs(path) {
			return Address{}, errors.New("expected file:// and an absolute path")
		}
		return Address{Kind: File, Path: filepath.Clean(path)}, nil
	default:
		if len(scheme) > 8 || strings.ContainsFunc(scheme, func(r rune) bool { return r < 'a' || r > 'z' }) {
			scheme = "another scheme"
		}
		return Address{}, fmt.Errorf("expected a URL with rtsp, rtsps, http, https or file in front of ://, got %s; "+
			"VLC or ffmpeg can pass it on over RTSP, see “Video sites and VLC” in docs/cameras.md", scheme)
	}
	u, literal, err := parseURL(scheme, rest)
	if err != nil {
		return Address{}, err
	}
	return Address{Kind: kind, URL: u, Literal: literal}, nil
}

// parseURL is url.Parse for passwords that are not escaped, with errors that do not repeat the address. literal is
// Address.Literal.
func parseURL(scheme, rest string) (u *url.URL, literal *url.Userinfo, err error) {
	var user *url.Userinfo
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		end = len(rest)
	}
	if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
		name, password, has := strings.Cut(rest[:at], ":")
		user = url.User(unescape(name))
		if has {
			user = url.UserPassword(unescape(name), unescape(password))
		}
		if unescape(name) != name || unescape(password) != password {
			literal = url.UserPassword(name, password)
		}
		rest = rest[at+1:]
	}
	u, err = url.Parse(scheme + "://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return nil, nil, errors.New("expected scheme://HOST[:PORT]/PATH, with a %2F for each / in the password")
	}
	u.User, u.Fragment, u.RawFragment = user, "", ""
	return u, literal, nil
}

func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return strings.NewReplacer("%2F", "/", "%2f", "/").Replace(s) // another % begins no escape
}

// String returns the address without user, password and query values, which often contain a password.
func (a Address) String() string {
	if a.URL == nil {
		if a.Kind == Webcam {
			return strings.TrimSuffix("webcam:"+a.Path, ":")
		}
		return filepath.Base(a.Path)
	}
	return Redacted(a.URL)
}

// Redacted returns a URL without user, password, fragment and query values.
func Redacted(u *url.URL) string {
	c := *u
	c.User, c.Fragment, c.RawFragment = nil, "", ""
	if c.RawQuery != "" {
		parts := strings.Split(c.RawQuery, "&")
		for i, p := range parts {
			if key, _, has := strings.Cut(p, "="); has {
				parts[i] = key + "=..."
			} else {
				parts[i] = "..."
			}
		}
		c.RawQuery = strings.Join(parts, "&")
	}
	return c.String()
}

// Hide removes the address's secrets from a text, such as an error of a library or
// program that repeats its input.
func (a Address) Hide(text string) string {
	if a.URL == nil {
		return text
	}
	var secrets []string
	if a.URL.User != nil {
		secrets = append(secrets, a.URL.User.String(), a.URL.User.Username())
		if p, ok := a.URL.User.Password(); ok {
			secrets = append(secrets, p, url.QueryEscape(p), url.PathEscape(p), url.UserPassword("", p).String()[1:])
		}
	}
	if a.Literal != nil {
		p, _ := a.Literal.Password()
		secrets = append(secrets, a.Literal.Username(), p)
	}
	for part := range strings.SplitSeq(a.URL.RawQuery, "&") {
		_, value, has := strings.Cut(part, "=")
		if !has {
			value = part
		}
		plain, _ := url.QueryUnescape(value)
		secrets = append(secrets, value, plain)
	}
	// The longest first, as one may contain another.
	slices.SortFunc(secrets, func(x, y string) int { return len(y) - len(x) })
	password, _ := a.URL.User.Password()
	for _, s := range secrets {
		if len(s) >= 3 || s != "" && s != "." && s == password {
			text = strings.ReplaceAll(text, s, "...")
		}
	}
	return text
}
