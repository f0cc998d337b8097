// Command touchline-codec decodes, scales and encodes pictures for one bot.
// The bot starts it and talks to it on standard input and output with the
// messages of package wire; it is of no use by hand, except for -check.
//
// It is the only program of this house that links libavcodec, so that neither
// a fault in a codec nor libavcodec's licence reaches the bot. Before it looks
// at anything a stranger sent it gives up files, sockets and other programs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

func main() {
	avoid := flag.String("avoid", "", "decoders and encoders not to use, by libav's names, with commas between")
	check := flag.Bool("check", false, "say what can be decoded and encoded, and whether confinement works")
	flag.Parse()
	if err := run(*avoid, *check); err != nil {
		fmt.Fprintln(os.Stderr, "touchline-codec:", err)
		os.Exit(1)
	}
}

func run(avoid string, check bool) error {
	setUpLibav()
	choice := newChoice(strings.Split(avoid, ","))
	confined := errors.Join(limitMemory(), confine())
	if check {
		return report(os.Stdout, choice, confined)
	}
	if confined != nil {
		fmt.Fprintln(os.Stderr, "running without confinement:", confined)
	}
	return newServer(os.Stdin, os.Stdout, os.Stderr, choice).run()
}

// report writes what this program can do, and proves that it cannot do what
// it must not.
func report(w io.Writer, c choice, confined error) error {
	if confined != nil {
		return confined
	}
	if _, err := fmt.Fprintln(w, c); err != nil {
		return err
	}
	if f, err := os.Open(os.DevNull); err == nil {
		return fmt.Errorf("confinement: opening %s was to be refused", f.Name())
	}
	if c, err := (&net.Dialer{}).Dial("udp", "127.0.0.1:9"); err == nil {
		return fmt.Errorf("confinement: a socket to %v was to be refused", c.RemoteAddr())
	}
	if p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{}); err == nil {
		return fmt.Errorf("confinement: starting /bin/true (now %d) was to be refused", p.Pid)
	}
	_, err := fmt.Fprintln(w, "confined: no files, no sockets, no programs")
	return err
}
