package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/inference/tokenizer"
	"touchline/worlds"
	"touchline/worlds/grammar"
)

const checkpoint = "../../models/nano/checkpoint/tokenizer.json"

// data makes a folder with two short films of each world; of the second, every third picture is there.
func data(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range worlds.Worlds() {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o750))
		for seed, file := range map[uint64]string{3: "3.jsonl", 4: "4-3.jsonl"} {
			w, err := worlds.New(worlds.Options{World: name, Seed: seed, Width: 160, Height: 90})
			require.NoError(t, err)
			var lines bytes.Buffer
			for n := range uint32(40 * grammar.FPS) {
				require.NoError(t, json.NewEncoder(&lines).Encode(w.Record(6*n, 6*n-min(6*n, 6))))
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, name, file), lines.Bytes(), 0o600))
		}
	}
	return dir
}

// received is a message as Python reads it.
type received struct {
	tables
	window

	Arrays []array `json:"arrays"`

	values [][]int64
}

// receive reads a message; the numbers of arrays that are no integers are left out.
func receive(t *testing.T, r *bufio.Reader) received {
	t.Helper()
	line, err := r.ReadBytes('\n')
	require.NoError(t, err)
	var m received
	require.NoError(t, json.Unmarshal(line, &m))
	for _, a := range m.Arrays {
		count := 1
		for _, n := range a.Shape {
			count *= n
		}
		size := int(a.Type[2] - '0')
		raw := make([]byte, count*size)
		_, err := io.ReadFull(r, raw)
		require.NoError(t, err)
		values := make([]int64, count)
		for i := range values {
			switch part := raw[i*size:]; a.Type {
			case typeInt8:
				values[i] = int64(int8(part[0]))
			case typeInt16:
				values[i] = int64(int16(binary.LittleEndian.Uint16(part)))
			case typeInt64:
				values[i] = int64(binary.LittleEndian.Uint64(part))
			}
		}
		m.values = append(m.values, values)
	}
	return m
}

// output is what the command writes for some requests.
func output(t *testing.T, requests string, args ...string) *bufio.Reader {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, strings.NewReader(requests), &out, t.Output()))
	return bufio.NewReader(&out)
}

func TestTables(t *testing.T) {
	t.Parallel()
	m := receive(t, output(t, "", "tables", "-data", data(t)))
	require.Equal(t, []film{{"match/3", 200}, {"yard/3", 200}, {"match/4-3", 67}, {"yard/4-3", 67}}, m.Films)
	require.Equal(t, []int{534, maxPoints, 3}, m.Arrays[0].Shape)
	heads := len(m.PictureHeads)
	require.Equal(t, []int{534, heads}, m.Arrays[1].Shape)
	require.Equal(t, []int{534, len(m.Places)}, m.Arrays[2].Shape)
	require.Equal(t, []int{534}, m.Arrays[3].Shape)
	for i, class := range m.values[1] {
		head := m.PictureHeads[i%heads]
		require.Less(t, class, int64(head.Size), head.Name)
		if known := strings.HasPrefix(head.Name, "match ") == (i/heads < 200 || 400 <= i/heads && i/heads < 467); !known {
			require.EqualValues(t, -1, class, head.Name)
		}
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	dir := data(t)
	args := []string{"batches", "-data", dir, "-tokenizer", checkpoint, "-queries", "16", "-pictures", "32", "-seed", "5"}
	const requests = "4 0\n4 1\n0 1\n2 1\n"
	a, b := output(t, requests, args...), output(t, requests, args...)
	p, err := newPrompts(checkpoint, 16)
	require.NoError(t, err)
	for k := range 4 {
		m := receive(t, a)
		require.Equal(t, m.values, receive(t, b).values)
		require.Equal(t, k > 0, m.Reading)
		require.Equal(t, []int{min(32/m.Pictures, maxRows), m.Pictures}, m.Arrays[0].Shape)
		for _, frame := range m.values[0] {
			require.Less(t, frame, int64([]int{534, 534, 400, 400}[k]))
		}
		if m.Reading {
			checkTexts(t, p, m)
		}
	}
}

// A film may have every third picture only. Its windows are then of pictures next to each other, and end with the picture of their last record.
func TestWindowsOfFewPictures(t *testing.T) {
	t.Parallel()
	g, err := grammar.New()
	require.NoError(t, err)
	paths, films, err := readFilms(data(t), g)
	require.NoError(t, err)
	m := newMaker(g, paths, films)
	m.dice = grammar.NewDice(1)
	require.Equal(t, []int{0, 200, 400, 467}, m.starts)
	few, all := 0, 0
	for range 2000 {
		r := m.row(4, 4)
		frames := r.frames()
		if r.film == nil {
			continue
		}
		all++
		start, end := m.starts[slices.Index(m.films, r.film)], r.i
		if r.every == 1 {
			require.EqualValues(t, start+end, frames[3])
			continue
		}
		few++
		require.EqualValues(t, start, frames[3]-int64(end/3))
		require.Zero(t, end%3)
		require.Equal(t, 3, r.gap)
		require.Equal(t, []int64{frames[0], frames[0] + 1, frames[0] + 2, frames[0] + 3}, frames)
		require.GreaterOrEqual(t, frames[0], int64(start))
	}
	require.InDelta(t, 0.32, float64(few)/float64(all), 0.05) // half of the windows with that gap
}

// checkTexts checks that the places in a batch are those of images, answers and lines.
func checkTexts(t *testing.T, p *prompts, m received) {
	t.Helper()
	ids, said, ends, images, lines := m.values[1], m.values[2], m.values[3], m.values[4], m.values[6]
	rows := m.Arrays[1].Shape[1]
	branches, places := ids[rows*rowSize:2*rows*rowSize], ids[2*rows*rowSize:]
	for _, at := range images {
		require.EqualValues(t, p.imageEnd, ids[at])
		require.EqualValues(t, 0, branches[at])
		require.Equal(t, at%rowSize, places[at])
	}
	require.Len(t, images, rows*m.Pictures)
	for i := 0; i < len(said); i += 3 {
		at, id, weight := said[i], said[i+1], said[i+2]
		if weight > 0 && id != int64(p.end) {
			require.Equal(t, id, ids[at+1])
		}
	}
	for i := 0; i < len(ends); i += 2 {
		if at, row := ends[i], ends[i+1]; row >= 0 {
			require.Equal(t, row, at/rowSize)
			require.Positive(t, branches[at])
		}
	}
	for i := 0; i < len(lines); i += 3 {
		if at, holds := lines[i], lines[i+2]; at > 0 {
			require.Contains(t, string(p.tokens.Piece(int32(ids[at]))), "\n")
			require.LessOrEqual(t, holds, int64(1))
		}
	}
}

func TestLooks(t *testing.T) {
	t.Parallel()
	out := output(t, "yard/3\nmatch/3\n", "looks", "-data", data(t), "-tokenizer", checkpoint, "-queries", "16")
	p, err := newPrompts(checkpoint, 16)
	require.NoError(t, err)
	for range 2 {
		line, err := out.ReadBytes('\n')
		require.NoError(t, err)
		var l look
		require.NoError(t, json.Unmarshal(line, &l))
		require.Len(t, l.Frames, len(l.Pictures))
		for i, picture := range l.Pictures {
			require.EqualValues(t, 6*picture, l.Frames[i])
		}
		text := p.tokens.Decode(l.IDs)
		require.Contains(t, text, l.System)
		require.Contains(t, text, l.Text)
	}
}

// A prompt is that of the engine: one by the chat template, or, with speech, one of its streaming call.
func TestPrompts(t *testing.T) {
	t.Parallel()
	p, err := newPrompts(checkpoint, 16)
	require.NoError(t, err)
	const system, text = "Look.\n\nAnswer in English.", "Rules:\n1. a dog comes\n2. it rains\nWhich?"
	ids, begin, err := p.write(system, text, 2, false)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(p.tokens.Decode(ids[begin:]), text))
	var ends []string
	for _, at := range p.lines(ids[begin:], 2) {
		ends = append(ends, p.tokens.Decode(ids[begin:begin+at+1]))
	}
	require.Equal(t, []string{"Rules:\n1. a dog comes\n", "Rules:\n1. a dog comes\n2. it rains\n"}, ends)

	ids, begin, err = p.write(system, text, 2, true)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(p.tokens.Decode(ids[begin:]), text))
	tail, err := p.tail(text, true)
	require.NoError(t, err)
	require.Equal(t, ids[begin:], tail)
	talk, err := p.builder.NewConversation(tokenizer.Options{Omni: true, Speech: true})
	require.NoError(t, err)
	first, err := talk.Prefill(tokenizer.Message{Role: tokenizer.System, Parts: []tokenizer.Part{{Text: system, Literal: true}}})
	require.NoError(t, err)
	second, err := talk.Prefill(tokenizer.Message{
		Role: tokenizer.User, Parts: []tokenizer.Part{{Image: &tokenizer.Image{}}, {Image: &tokenizer.Image{}}, {Text: text, Literal: true}},
	})
	require.NoError(t, err)
	third, err := talk.Generate()
	require.NoError(t, err)
	require.Equal(t, slices.Concat(first.IDs, second.IDs, third.IDs), ids)
}

func TestAnswerWeights(t *testing.T) {
	t.Parallel()
	p, err := newPrompts(checkpoint, 16)
	require.NoError(t, err)
	for text, want := range map[string]string{"...": "[2 1]", `{"fired":[]}`: "6", `{"fired":[{"rule":3,"reason":"A dog."}]}`: "6"} {
		ids, weights := p.answer(text)
		require.Len(t, weights, len(ids))
		require.Equal(t, p.end, ids[len(ids)-1])
		require.Contains(t, fmt.Sprint(weights), want)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		want string
	}{
		{nil, `mode "": must be tables, batches, looks or corpus`},
		{[]string{"tables", "-data", "none"}, `-data "none": no films there`},
		{[]string{"batches", "-tokenizer", "none"}, "read the tokenizer"},
		{[]string{"batches", "-queries", "0"}, "-queries: must be positive"},
		{[]string{"corpus", "more"}, `unexpected argument "more"`},
	}
	for _, tt := range tests {
		require.ErrorContains(t, run(tt.args, strings.NewReader(""), io.Discard, t.Output()), tt.want)
	}
	dir := data(t)
	for mode, want := range map[string]string{"batches": "must be two numbers", "looks": "must be a film"} {
		err := run([]string{mode, "-data", dir, "-tokenizer", checkpoint}, strings.NewReader("x\n"), io.Discard, t.Output())
		require.ErrorContains(t, err, want)
	}
}
