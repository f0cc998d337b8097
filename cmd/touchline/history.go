package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"touchline/agent/history"
)

// historyCmd prints the history of rooms.
type historyCmd struct {
	Room   string `arg:"" optional:"" help:"Room to show; lists the rooms without it (jsonl: all entries of all rooms)."`
	Format string `help:"${enum}." enum:"text,json,jsonl,srt,vtt" default:"text" short:"f"`
	Follow bool   `help:"Go on with entries as they are written, until interrupted, with --format jsonl. Without --from or --last only those."`
	From   string `help:"Only comments since: 2026-05-01T20:15:00Z, '2026-05-01 20:15', 20:15 (today) or 2h (ago)." placeholder:"TIME"`
	To     string `help:"Only comments that began before." placeholder:"TIME"`
	Last   int    `help:"Only the newest N comments." placeholder:"N"`
	All    bool   `help:"Include cycles without a comment (text, json and jsonl)."`
	Alerts bool   `help:"Alerts in place of comments (text, json and jsonl)."`
	Heard  bool   `help:"What people in the room said, in place of comments."`
	By     string `help:"Only what this identity said, with --heard." placeholder:"IDENTITY"`
	Delete bool   `help:"Delete what --heard selects, spoken orders included, in place of printing it."`
	Zero   string `help:"Start of the subtitles; the first comment without it." placeholder:"TIME"`
	Store  string `help:"Folder or database; overrides agent.history.path." placeholder:"PATH" type:"path"`
}

// Validate refuses flags that the format cannot show.
func (h *historyCmd) Validate() error {
	switch subtitles := h.Format == "srt" || h.Format == "vtt"; {
	case subtitles && (h.Alerts || h.All):
		return fmt.Errorf("--alerts and --all have no subtitles, and --format is %s; choose text or json", h.Format)
	case h.Follow && (h.Format != "jsonl" || h.Delete || h.To != ""):
		return errors.New("--follow goes with --format jsonl, and without --to and --delete")
	case !subtitles && h.Zero != "":
		return fmt.Errorf("--zero is the start of subtitles, and --format is %s; choose srt or vtt", h.Format)
	}
	return nil
}

// Run prints to standard output.
func (h *historyCmd) Run(ctx context.Context, a *app) (err error) {
	path := h.Store
	path = cmp.Or(path, a.cfg.Agent.History.Path)
	if path == "" {
		return errors.New("no history to read: agent.history.path is empty; set it, or name a folder or database with --store")
	}
	if h.Last < 0 {
		return fmt.Errorf("--last %d: must not be negative", h.Last)
	}
	if !h.Heard && (h.Delete || h.By != "") || h.Heard && (h.Alerts || h.Room == "") || h.Delete && h.Last > 0 {
		return errors.New("--delete and --by go with --heard and a room; --heard without --alerts; --delete without --last")
	}
	now := time.Now()
	times := map[string]time.Time{}
	for flag, text := range map[string]string{"from": h.From, "to": h.To, "zero": h.Zero} {
		if times[flag], err = parseMoment(text, now); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	q := history.Query{
		Room: h.Room, From: times["from"], To: times["to"], Last: h.Last,
		Everything: h.Format == "jsonl" && h.Room == "",
		Comments:   !h.Heard && (!h.All && !h.Alerts || h.Format == "srt" || h.Format == "vtt"), Alerts: h.Alerts, Heard: h.Heard, By: h.By,
	}
	if h.Delete {
		return forget(ctx, path, q)
	}
	store, err := history.OpenReader(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if h.Room == "" && !q.Everything {
		return h.rooms(ctx, os.Stdout, store)
	}
	var damaged error
	n := 0
	entries := whole(store.Entries(ctx, q), &damaged, &n)
	if h.Follow {
		follower, ok := store.(history.Follower)
		if !ok {
			return fmt.Errorf("follow %s: nothing writes to it, it has the files of an earlier version alone; start the bot first", path)
		}
		return history.WriteLines(os.Stdout, follower.Follow(ctx, q, h.From != "" || h.Last > 0))
	}
	switch h.Format {
	case "jsonl":
		err = history.WriteLines(os.Stdout, entries)
	case "json":
		err = history.WriteJSON(os.Stdout, entries)
	case "srt":
		err = history.WriteSRT(os.Stdout, entries, times["zero"])
	case "vtt":
		err = history.WriteVTT(os.Stdout, entries, times["zero"])
	default:
		err = history.WriteText(os.Stdout, entries, time.Local)
	}
	if n == 0 && (h.Format == "srt" || h.Format == "vtt") && err == nil && damaged == nil { // players show no reason for an empty file
		return known(ctx, store, h.Room, path)
	}
	return errors.Join(err, damaged)
}

// known returns an error for a room that a store does not have.
func known(ctx context.Context, store history.Reader, room, path string) error {
	rooms, err := store.Rooms(ctx)
	if err != nil || slices.ContainsFunc(rooms, func(r history.RoomInfo) bool { return r.Room == room }) {
		return err
	}
	names := make([]string, len(rooms))
	for i, r := range rooms {
		names[i] = strconv.Quote(r.Room)
	}
	return fmt.Errorf("room %q is not in the history of %s, which has %s", room, path, cmp.Or(strings.Join(names, ", "), "none"))
}

// forget deletes the speech of participants.
func forget(ctx context.Context, path string, q history.Query) error {
	n, err := history.Forget(ctx, path, q)
	if err == nil {
		_, err = fmt.Printf("deleted: %d\n", n)
	}
	return err
}

// whole skips the unreadable parts of a store, collects their errors and counts the entries.
func whole(entries iter.Seq2[history.Entry, error], damaged *error, n *int) iter.Seq2[history.Entry, error] {
	return func(yield func(history.Entry, error) bool) {
		for e, err := range entries {
			if err != nil {
				*damaged = errors.Join(*damaged, err)
				continue
			}
			*n++
			if !yield(e, nil) {
				return
			}
		}
	}
}

// rooms prints the rooms of the store.
func (h *historyCmd) rooms(ctx context.Context, w io.Writer, store history.Reader) error {
	rooms, err := store.Rooms(ctx)
	if h.Format == "json" {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return errors.Join(err, out.Encode(append([]history.RoomInfo{}, rooms...)))
	}
	if len(rooms) == 0 && err == nil {
		_, err = fmt.Fprintln(w, "no room has a history yet")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROOM\tCOMMENTS\tRECORDS\tFIRST\tLAST")
	for _, r := range rooms {
		const layout = time.DateTime
		fmt.Fprintf(table, "%q\t%d\t%d\t%s\t%s\n", r.Room, r.Comments, r.Records, r.First.Local().Format(layout), r.Last.Local().Format(layout))
	}
	return errors.Join(err, table.Flush())
}

// parseMoment parses a time or a duration before now; "" is the zero time.
func parseMoment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			y, m, d := now.Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location()), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("expected a time such as 2026-05-01T20:15:00Z, \"2026-05-01 20:15\", 20:15 or 2h (ago), got %q", s)
}
