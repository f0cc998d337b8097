package configs

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Variables returns all environment variables with their YAML paths, in file order.
func Variables() []Variable {
	var out []Variable
	g := schemaOf(Config{})
	g.each(func(l *leaf) { out = append(out, Variable{Name: l.env, Path: l.path, Secret: l.secret}) })
	alias := map[string]string{}
	for name, target := range wellKnown() {
		alias[target] = name
	}
	for i := range out {
		out[i].WellKnown = alias[out[i].Name]
	}
	return out
}

// Variable is one environment variable.
type Variable struct {
	Name string
	// WellKnown is a second name that other programs use too (LIVEKIT_URL), or "".
	WellKnown string
	// Path of the setting in the file. For a secret, which a file must not contain, the name in messages.
	Path   string
	Secret bool
}

// wellKnown maps the variables of LiveKit's own programs to this program's.
func wellKnown() map[string]string {
	return map[string]string{
		"LIVEKIT_URL":        Prefix + "AGENT_LIVEKIT_URL",
		"LIVEKIT_API_KEY":    Prefix + "AGENT_LIVEKIT_API_KEY",
		"LIVEKIT_API_SECRET": Prefix + "AGENT_LIVEKIT_API_SECRET",

		"LIVEKIT_AGENT_NAME":       Prefix + "AGENT_WORKER_AGENT_NAME",
		"LIVEKIT_AGENT_DEPLOYMENT": Prefix + "AGENT_WORKER_DEPLOYMENT",
	}
}

// environment converts "NAME=value" strings to a map and skips empty values.
func environment(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && value != "" {
			out[name] = value
		}
	}
	for name, target := range wellKnown() {
		if out[name] != "" && out[target] == "" {
			out[target], out[aliasMark+target] = out[name], name
		}
	}
	return out
}

// aliasMark is the key prefix of the well-known name that set a variable. No real
// variable name contains it.
const aliasMark = "="

// environment overwrites settings with variables. It reads each separately, so that
// all wrong ones are reported.
func (l *loader) environment(vars map[string]string) {
	known := map[string]*leaf{}
	for _, leaf := range l.leaves {
		known[leaf.env] = leaf
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !strings.HasPrefix(name, Prefix) || name == FileVariable {
			continue
		}
		leaf, ok := known[name]
		if !ok {
			if !isServiceLink(name) {
				l.unknownVariable(name, known)
			}
			continue
		}
		value, given := vars[name], cmp.Or(vars[aliasMark+name], name)
		l.origins[leaf.path] = origin{name: given}
		l.forgetItems(leaf.path)
		err := env.ParseWithOptions(&l.cfg, env.Options{Prefix: Prefix, Environment: map[string]string{name: value}})
		// env accepts "NaN" and "Inf"; a rule rejects them later.
		if err != nil {
			shown := strconv.Quote(shorten(value, 60))
			if leaf.secret {
				shown = "not"
			}
			l.bad = append(l.bad, Problem{
				Path: leaf.path, Source: given, Message: "must be " + kindOf(leaf.typ) + ", is " + shown,
			})
			continue
		}
		trimList(reflect.ValueOf(&l.cfg).Elem().FieldByIndex(leaf.index))
	}
}

// trimList removes the blanks in "a, b".
func trimList(field reflect.Value) {
	if list, ok := field.Interface().([]string); ok {
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
	}
}

// isServiceLink reports whether Kubernetes sets the variable in every pod for a
// service named "touchline".
func isServiceLink(name string) bool {
	rest := strings.TrimPrefix(name, Prefix)
	return rest == "PORT" || strings.HasPrefix(rest, "PORT_") ||
		strings.HasSuffix(rest, "SERVICE_HOST") || strings.Contains(rest, "SERVICE_PORT")
}

func (l *loader) unknownVariable(name string, known map[string]*leaf) {
	for path, why := range removed {
		if name == Prefix+strings.ToUpper(strings.ReplaceAll(path, ".", "_")) {
			l.bad = append(l.bad, Problem{Path: path, Source: name, Message: "this setting was removed: " + why})
			return
		}
	}
	message := "unknown variable"
	if guess := nearest(name, slices.Sorted(maps.Keys(known))); guess != "" {
		message += ", did you mean " + guess + "?"
	}
	l.bad = append(l.bad, Problem{Source: name, Message: message})
}

// nearest returns the most similar word, or "" if all differ by more than a third.
func nearest(word string, among []string) string {
	best, least := "", len(word)/3+1
	if len(word) > 100 {
		return ""
	}
	for _, w := range among {
		if d := distance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance returns the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
