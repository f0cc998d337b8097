package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/internal/contract"
)

// TestHelpContract: names, flags and texts of all commands.
func TestHelpContract(t *testing.T) {
	var out strings.Builder
	var walk func(n *kong.Node, words []string)
	walk = func(n *kong.Node, words []string) {
		var c cli
		command := strings.Join(append([]string{"touchline-bench"}, words...), " ")
		parser, err := kong.New(&c, kong.Name("touchline-bench"), kong.Description(description), kong.Writers(&out, &out),
			kong.Exit(func(int) { panic(command) }))
		require.NoError(t, err)
		fmt.Fprintf(&out, "$ %s --help\n", command)
		require.PanicsWithValue(t, command, func() { _, _ = parser.Parse(append(words, "--help")) })
		out.WriteString("\n")
		if n == nil {
			n = parser.Model.Node
		}
		for _, child := range n.Children {
			if child.Type == kong.CommandNode && !child.Hidden {
				walk(child, append(words[:len(words):len(words)], child.Name))
			}
		}
	}
	walk(nil, nil)
	contract.Compare(t, "testdata/contract/help.txt", out.String())
}

// TestUnknownPart: the error names the parts that there are.
func TestUnknownPart(t *testing.T) {
	err := (&runCmd{Only: []string{"nothing"}}).Run(t.Context(), zerolog.Nop())
	require.ErrorContains(t, err, `--only "nothing": no such part; choose from alignment, steady,`)
}

// TestOrderLines: every kind of line is there, and a sentence has its words in place of theirs.
func TestOrderLines(t *testing.T) {
	o := &orders{lines: orderLines()}
	for name, n := range map[string]int{"orders": 40, "WHO": 12, "WHEN": 12, "speech": 12, "touchline": 10} {
		require.Len(t, o.lines[name], n, name)
	}
	for n := range 50 {
		require.NotRegexp(t, "WHO|WHEN| who ", o.sentence(n, "speech")+o.sentence(n, "touchline"))
	}
}
