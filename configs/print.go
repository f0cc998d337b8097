package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Print writes the effective settings as a YAML file that Load reads to the same
// effect. A comment names the origin of each value that is not the default.
// Secrets appear in comments, as set or not set, without their values.
func (c Config) Print(w io.Writer) error {
	var b bytes.Buffer
	c.printGroup(&b, schemaOf(c), reflect.ValueOf(c), "")
	_, err := w.Write(b.Bytes())
	return err
}

func (c Config) printGroup(b *bytes.Buffer, g *group, root reflect.Value, indent string) {
	for _, key := range g.order {
		if sub, ok := g.groups[key]; ok {
			fmt.Fprintf(b, "%s%s:\n", indent, key)
			c.printGroup(b, sub, root, indent+"  ")
			continue
		}
		l := g.leaves[key]
		fmt.Fprintf(b, "%s%s: %s", indent, key, scalar(root.FieldByIndex(l.index)))
		if from := c.from[l.path]; from != "" {
			fmt.Fprintf(b, "  # %s", printable(from))
		}
		b.WriteByte('\n')
	}
	for _, l := range g.hidden {
		state := "not set"
		if root.FieldByIndex(l.index).String() != "" {
			state = "set"
			if from := c.from[l.path]; from != "" {
				state += " by " + from
			}
		}
		name := l.path[strings.LastIndexByte(l.path, '.')+1:]
		fmt.Fprintf(b, "%s# %s: %s, redacted\n", indent, name, state)
	}
}

// scalar returns one value as YAML.
func scalar(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration, bool, int:
		return fmt.Sprint(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	switch v.Kind() { //nolint:exhaustive // the kinds of settings
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = scalar(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Struct:
		return item(v)
	}
	return quote(v.String())
}

// item returns one group of a list: its non-zero fields, or plain text if only the first is set.
func item(v reflect.Value) string {
	var parts []string
	for f, field := range v.Fields() {
		if !field.IsZero() {
			parts = append(parts, f.Tag.Get("yaml")+": "+scalar(field))
		}
	}
	if len(parts) == 1 && !v.Field(0).IsZero() {
		return scalar(v.Field(0))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// quote returns a JSON string, which is valid YAML.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return strconv.Quote(s) // A string always encodes.
	}
	return strings.TrimSuffix(b.String(), "\n")
}
