package configs

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"touchline/internal/redact"
)

// group is one level of the file: settings and subgroups in the order of the Go
// fields.
type group struct {
	path   string
	order  []string
	leaves map[string]*leaf
	groups map[string]*group
	// hidden lists the secrets of this level, which a file must not contain.
	hidden []*leaf
}

// leaf is one setting.
type leaf struct {
	path   string // media.watch.identity
	env    string // TOUCHLINE_MEDIA_WATCH_IDENTITY
	index  []int  // for reflect.Value.FieldByIndex
	typ    reflect.Type
	secret bool
}

// schemaOf reads the yaml, env and envPrefix tags of a struct. A field without env
// and envPrefix is no setting.
func schemaOf(v any) *group { return readGroup(reflect.TypeOf(v), "", Prefix, nil) }

func readGroup(t reflect.Type, path, prefix string, index []int) *group {
	g := &group{path: strings.TrimSuffix(path, "."), leaves: map[string]*leaf{}, groups: map[string]*group{}}
	for f := range t.Fields() {
		key, env, nested := f.Tag.Get("yaml"), f.Tag.Get("env"), f.Tag.Get("envPrefix")
		at := append(append([]int(nil), index...), f.Index...)
		switch {
		case f.Anonymous:
			g.take(readGroup(f.Type, path, prefix, at))
		case nested != "":
			g.order = append(g.order, key)
			g.groups[key] = readGroup(f.Type, path+key+".", prefix+nested, at)
		case env != "" && key == "-":
			key = strings.ToLower(env)
			g.hidden = append(g.hidden, &leaf{path: path + key, env: prefix + env, index: at, typ: f.Type, secret: true})
		case env != "":
			g.order = append(g.order, key)
			g.leaves[key] = &leaf{path: path + key, env: prefix + env, index: at, typ: f.Type}
		}
	}
	return g
}

// take adds the settings of an embedded struct.
func (g *group) take(of *group) {
	g.order = append(g.order, of.order...)
	maps.Copy(g.leaves, of.leaves)
	maps.Copy(g.groups, of.groups)
	g.hidden = append(g.hidden, of.hidden...)
}

// each calls fn for all settings of the group and its subgroups, secrets last in each.
func (g *group) each(fn func(*leaf)) {
	for _, key := range g.order {
		if l, ok := g.leaves[key]; ok {
			fn(l)
		} else {
			g.groups[key].each(fn)
		}
	}
	for _, l := range g.hidden {
		fn(l)
	}
}

// secret returns the secret that a key names exactly or approximately.
func (g *group) secret(key string) *leaf {
	for _, l := range g.hidden {
		name := l.path[strings.LastIndexByte(l.path, '.')+1:]
		if key == name || (nearest(key, g.order) == "" && nearest(key, []string{name}) != "") {
			return l
		}
	}
	return nil
}

// flat returns all settings by path.
func (g *group) flat() map[string]*leaf {
	out := map[string]*leaf{}
	g.each(func(l *leaf) { out[l.path] = l })
	return out
}

// ofGroups reports whether the setting is a list of groups.
func (l *leaf) ofGroups() bool {
	return l.typ.Kind() == reflect.Slice && l.typ.Elem().Kind() == reflect.Struct
}

// kindOf describes the values of a type for messages.
func kindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a time with its unit, such as 500ms, 4s or 10m"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Int:
		return "a list of whole numbers"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "a list of texts or groups of settings"
	case t.Kind() == reflect.Slice:
		return "a list of texts"
	case t == reflect.TypeFor[redact.Secret]():
		return "a secret"
	}
	return "text"
}
