package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
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
