// Package contract holds characterisation tests of public interfaces: the HTTP API, the settings, RPC replies, data topics, metrics, MQTT
// topics, command lines, environment variables, and files of earlier versions.
//
// Each test compares the program's output with a file in testdata, written by commit 9b77654 with -update. A difference is a change that
// users see: it needs a reason and a line in the changelog. The files have no times, paths, ports or
// random names; Scrub replaces them.
//
// 9b77654.tar.gz has files that commit 9b77654 wrote, and is never written again: state.db with a room for each way to change a setting,
// and the same history in both stores of that time, history.db and the folder history, with an interrupted compression and an interrupted
// last line. bundles-9b77654.tar.gz has bundles that it converted from the tests' checkpoints: words, with a voice, and ears and aligner,
// for speech recognition. UnpackBundles generates their weights, 40 MB, instead.
package contract

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//nolint:gochecknoglobals // a flag of the test program
var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Compare fails the test if got is not the text of the golden file at path. With -update it writes the file.
func Compare(tb testing.TB, path, got string) {
	tb.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			tb.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if want := string(text); want != got {
		tb.Errorf("%s: the contract changed; if it should, run the test with -update\n%s", path, difference(want, got))
	}
}

// difference lists the lines that are in one text only, with their numbers.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	list := func(sign string, lines, others []string) {
		for i, line := range lines {
			if !slices.Contains(others, line) {
				out.WriteString(sign + " " + strconv.Itoa(i+1) + ": " + line + "\n")
			}
		}
	}
	list("-", a, b)
	list("+", b, a)
	if out.Len() == 0 {
		return "the same lines in another order"
	}
	return out.String()
}

// width is the maximum length of a JSON value on one line.
const width = 140

// JSON formats a JSON text: a value that fits on one line is not broken. The order stays.
func JSON(text []byte) string {
	var out strings.Builder
	writeJSON(&out, bytes.TrimSpace(text), "")
	return out.String() + "\n"
}

func writeJSON(out *strings.Builder, text json.RawMessage, indent string) {
	var flat bytes.Buffer
	if err := json.Compact(&flat, text); err != nil {
		out.WriteString(strconv.Quote(string(text)))
		return
	}
	opens := flat.Bytes()[0]
	if flat.Len()+len(indent) <= width || opens != '{' && opens != '[' {
		out.Write(flat.Bytes())
		return
	}
	d := json.NewDecoder(&flat)
	_, _ = d.Token() // the text is valid, as Compact has read it
	out.WriteByte(opens)
	for first := true; d.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		out.WriteString("\n" + indent + " ")
		if opens == '{' {
			name, _ := d.Token()
			out.WriteString(strconv.Quote(name.(string)) + ": ") //nolint:forcetypeassert // names are strings
		}
		var value json.RawMessage
		_ = d.Decode(&value)
		writeJSON(out, value, indent+" ")
	}
	out.WriteString("\n" + indent + string(opens+2)) // the closing bracket
}

// Scrub replaces the parts that differ from run to run: times, addresses with ports, tokens, random ids.
func Scrub(text string) string {
	for _, r := range scrubbed() {
		text = r.find.ReplaceAllString(text, r.with)
	}
	return text
}

type replacement struct {
	find *regexp.Regexp
	with string
}

func scrubbed() []replacement {
	return []replacement{
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
		{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
		{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "JWT"},
	}
}

// Unpack extracts the files that commit 9b77654 wrote into a folder of the test and returns it. archive is the path of 9b77654.tar.gz.
func Unpack(tb testing.TB, archive string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	if err := unpack(archive, dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// UnpackBundles is Unpack for bundles-9b77654.tar.gz. It generates the data files of the bundles, with pseudo-random numbers.
func UnpackBundles(tb testing.TB, archive string) (dir string) {
	tb.Helper()
	dir = Unpack(tb, archive)
	manifests, err := filepath.Glob(filepath.Join(dir, "*", "manifest.json"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range manifests {
		text, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		var manifest struct {
			Files []struct {
				Name string `json:"name"`
				Size int    `json:"size"`
			} `json:"files"`
		}
		if err := json.Unmarshal(text, &manifest); err != nil {
			tb.Fatal(err)
		}
		for _, f := range manifest.Files {
			if filepath.Ext(f.Name) != ".data" {
				continue
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), f.Name), Weights(f.Size), 0o600); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return dir
}

// Weights returns size bytes of float32 between -0.1 and 0.1, the same in each call.
func Weights(size int) []byte {
	out := make([]byte, 0, size+4)
	for x := uint32(2463534242); len(out) < size; {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(int32(x))/(1<<31)*0.1))
	}
	return out[:size]
}

func unpack(archive, dir string) error {
	packed, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	for in := tar.NewReader(plain); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o750); err != nil {
				return err
			}
			continue
		}
		text, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			return err
		}
	}
}
