// Command touchline-codec decodes, scales and encodes pictures for one bot. The bot starts it and exchanges the messages of package wire
// with it on standard input and output. With -sound it encodes the audio on standard input, with -unpack it decodes the audio of a file.
// Only -check is for manual use.
//
// It is the only program of this project that links libavcodec. This keeps codec faults and libavcodec's licence out of the bot. Before
// it reads any untrusted data it gives up access to files, sockets and other programs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"touchline/internal/child"
)

func main() {
	avoid := flag.String("avoid", "", "comma-separated libav names of decoders and encoders that must not be used")
	check := flag.Bool("check", false, "print the available decoders and encoders, and test the confinement")
	format := flag.String("sound", "", "encode mono sound, s16le, from standard input: mp3 or aac")
	rate := flag.Int("rate", 24000, "rate of the sound, Hz")
	unpack := flag.Bool("unpack", false, "decode the sound of the file on standard input, of any usual format")
	flag.Parse()
	if err := run(*avoid, *check, *unpack, *format, *rate); err != nil {
		fmt.Fprintln(os.Stderr, "touchline-codec:", err)
		os.Exit(1)
	}
}

func run(avoid string, check, unpack bool, format string, rate int) error {
	setUpLibav()
	var missing error
	if unpack {
		missing = loadUnpacker()
	}
	choice := newChoice(strings.Split(avoid, ","))
	parent := os.Getppid() // Pure refuses this
	confined := errors.Join(limitMemory(unpack || format != ""), child.Pure(check))
	if check {
		return report(os.Stdout, choice, confined, parent)
	}
	if confined != nil {
		fmt.Fprintln(os.Stderr, "running without confinement:", confined)
	}
	if unpack {
		if missing != nil {
			return missing
		}
		return unpackSound(int(os.Stdin.Fd()), os.Stdout)
	}
	if format != "" {
		return encodeSound(format, rate, os.Stdin, os.Stdout)
	}
	return newServer(os.Stdin, os.Stdout, os.Stderr, choice).run()
}

// report prints the available codecs and tests that the confinement refuses the forbidden acts, without Landlock.
func report(w io.Writer, c choice, confined error, parent int) error {
	if confined != nil {
		return confined
	}
	if _, err := fmt.Fprintln(w, c); err != nil {
		return err
	}
	if _, err := child.Try(parent, math.MaxInt); err != nil {
		return fmt.Errorf("confinement: %w", err)
	}
	_, err := fmt.Fprintln(w, "confined: no files, no sockets, no programs")
	return err
}
