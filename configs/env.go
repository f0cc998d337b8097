package configs

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/caarlos0/env/v11"
)

// environment overwrites settings with variables. It reads each separately, so that
// all wrong ones are reported.
func (l *loader) environment(vars map[string]string) {
	known := map[string]*leaf{}
	for _, leaf := range l.leaves {
		known[leaf.env] = leaf
	}
	for _, name := range sortedKeys(vars) {
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
		value, given := vars[name], name
		if alias := vars[aliasMark+name]; alias != "" {
			given = alias
		}
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
	message := "unknown variable"
	for path, why := range removed {
		if name == Prefix+strings.ToUpper(strings.ReplaceAll(path, ".", "_")) {
			l.bad = append(l.bad, Problem{Path: path, Source: name, Message: "this setting was removed: " + why})
			return
		}
	}
	if guess := nearest(name, sortedKeys(known)); guess != "" {
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
