package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"touchline/inference"
	"touchline/inference/minicpmo/voice"
	"touchline/models"
)

// voiceRow is a voice as printed by --json.
type voiceRow struct {
	Name    string  `json:"name"`
	Codes   int     `json:"codes"`
	Seconds float64 `json:"seconds"`
	Source  string  `json:"source_sha256"`
	Error   string  `json:"error,omitempty"`
}

func rowOf(name string, v voice.Stored) voiceRow {
	const rate = 25 // codes per second
	return voiceRow{Name: name, Codes: len(v.Codes), Seconds: float64(len(v.Codes)) / rate, Source: v.Source}
}

// Run adds the voice.
func (c *voiceAddCmd) Run(ctx context.Context) error {
	b, err := models.OpenBundle(c.Bundle)
	if err != nil {
		return err
	}
	if err := voice.CheckName(c.Name); err != nil {
		return err
	}
	names, err := voice.Names(b)
	if err != nil {
		return err
	}
	if slices.Contains(names, c.Name) && !c.Replace {
		return fmt.Errorf("the bundle has a voice %q already: choose another name, or add --replace", c.Name)
	}
	v, err := voice.MakeFrom(ctx, c.Library, b, c.File, cmp.Or(c.Codes, voice.Long))
	short := c.Codes == 0 && errors.Is(err, voice.ErrShort)
	if short {
		v, err = voice.MakeFrom(ctx, c.Library, b, c.File, voice.Short)
	}
	if err != nil {
		return err
	}
	if err := voice.Save(b, c.Name, v); err != nil {
		return err
	}
	row := rowOf(c.Name, v)
	if c.JSON {
		return writeJSON(os.Stdout, row)
	}
	fmt.Printf("voice %q of %g s of %s\n", row.Name, row.Seconds, c.File)
	if short {
		fmt.Println("The recording has less than 6 s of speech: the voice needs inference.voice.prompt 3s, or a default voice that is as short.")
	}
	return nil
}

// Run prints a line per voice.
func (c *voiceListCmd) Run() error {
	b, err := models.OpenBundle(c.Bundle)
	if err != nil {
		return err
	}
	names, err := voice.Names(b)
	if err != nil {
		return err
	}
	rows := make([]voiceRow, 0, len(names))
	for _, name := range names {
		v, err := voice.Read(b, name)
		row := rowOf(name, v)
		if err != nil {
			row.Error = err.Error()
		}
		rows = append(rows, row)
	}
	if c.JSON {
		return writeJSON(os.Stdout, map[string]any{"voices": rows})
	}
	own := b.Manifest.Voice != nil && b.Manifest.Voice.Sound != "" && !slices.Contains(names, inference.DefaultVoice)
	return writeVoices(os.Stdout, rows, own)
}

// writeVoices writes the table; own adds the voice that the engine creates at its first start.
func writeVoices(w io.Writer, rows []voiceRow, own bool) error {
	if len(rows) == 0 && !own {
		_, err := fmt.Fprintln(w, "no voices: add one with `touchline models voice add`")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "voice\tlength\tSHA-256 of the sound\t")
	if own {
		fmt.Fprintf(t, "%s\t\tmade of the model's own sound at its first start\t\n", inference.DefaultVoice)
	}
	for _, r := range rows {
		if r.Error != "" {
			fmt.Fprintf(t, "%s\t\tcannot be used: %s\t\n", r.Name, r.Error)
			continue
		}
		fmt.Fprintf(t, "%s\t%g s\t%s\t\n", r.Name, r.Seconds, r.Source)
	}
	return t.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Run removes the voice's file.
func (c *voiceRemoveCmd) Run() error {
	b, err := models.OpenBundle(c.Bundle)
	if err != nil {
		return err
	}
	if err := voice.Remove(b, c.Name); err != nil {
		return err
	}
	fmt.Printf("voice %q removed\n", c.Name)
	return nil
}
