// Command examples writes nano's training data, made by the grammar, in binary and JSON, for Python to read:
//
//	examples tables  what can be learnt, and what every picture of the films shows
//	examples batches the batches of the training
//	examples looks   prompts about one film after another, with their pictures
//	examples corpus  the texts that the tokenizer is trained on
//
// The films are the records that command render writes. The same arguments and requests give the same bytes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"touchline/worlds/grammar"
)

// settings of a run.
type settings struct {
	data      string
	tokenizer string
	queries   int
	seed      uint64
	pictures  int
}

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "examples:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, log io.Writer) (mode string, s settings, err error) {
	flags := flag.NewFlagSet("examples tables|batches|looks|corpus", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&s.data, "data", "", "`folder` with the records of films, in a folder for each world")
	flags.StringVar(&s.tokenizer, "tokenizer", "", "tokenizer.json, a `file`")
	flags.IntVar(&s.queries, "queries", 64, "tokens of a picture in a prompt")
	flags.Uint64Var(&s.seed, "seed", 0, "seed of batches and looks")
	flags.IntVar(&s.pictures, "pictures", 512, "pictures in a batch")
	if len(args) > 0 {
		mode, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return mode, s, err
	}
	if flags.NArg() > 0 {
		return mode, s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if s.queries < 1 || s.pictures < 8 {
		return mode, s, errors.New("-queries: must be positive; -pictures: must be at least 8")
	}
	return mode, s, nil
}

// run writes the output of a mode. The modes that answer requests read one per line of in.
func run(args []string, in io.Reader, out, log io.Writer) error {
	mode, s, err := parse(args, log)
	if err != nil {
		return err
	}
	g, err := grammar.New()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	switch mode {
	case "tables":
		err = s.tables(g, w)
	case "batches":
		err = s.batches(g, in, w)
	case "looks":
		err = s.looks(g, in, w)
	case "corpus":
		err = corpus(g, w)
	default:
		return fmt.Errorf("mode %q: must be tables, batches, looks or corpus", mode)
	}
	return errors.Join(err, w.Flush())
}

// corpus writes one text per line, as JSON.
func corpus(g *grammar.Grammar, w io.Writer) error {
	e := json.NewEncoder(w)
	for _, text := range g.Corpus(grammar.NewDice(0)) {
		if err := e.Encode(text); err != nil {
			return err
		}
	}
	return nil
}
