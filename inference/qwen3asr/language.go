package qwen3asr

import (
	"fmt"
	"strings"

	"touchline/inference"
)

// languages are the model's languages: the name that it reads and writes, and the tag.
//
//nolint:gochecknoglobals // a table
var languages = [...]struct{ name, tag string }{
	{"Chinese", "zh"},
	{"English", "en"},
	{"Cantonese", "yue"},
	{"Arabic", "ar"},
	{"German", "de"},
	{"French", "fr"},
	{"Spanish", "es"},
	{"Portuguese", "pt"},
	{"Indonesian", "id"},
	{"Italian", "it"},
	{"Korean", "ko"},
	{"Russian", "ru"},
	{"Thai", "th"},
	{"Vietnamese", "vi"},
	{"Japanese", "ja"},
	{"Turkish", "tr"},
	{"Hindi", "hi"},
	{"Malay", "ms"},
	{"Dutch", "nl"},
	{"Swedish", "sv"},
	{"Danish", "da"},
	{"Finnish", "fi"},
	{"Polish", "pl"},
	{"Czech", "cs"},
	{"Filipino", "fil"},
	{"Persian", "fa"},
	{"Greek", "el"},
	{"Romanian", "ro"},
	{"Hungarian", "hu"},
	{"Macedonian", "mk"},
}

func languageTags() []string {
	tags := make([]string, len(languages))
	for i, l := range languages {
		tags[i] = l.tag
	}
	return tags
}

// languageName returns the model's name of a language that is asked for by its tag or its
// name; "" for "".
func languageName(asked string) (string, error) {
	asked = strings.TrimSpace(asked)
	if asked == "" {
		return "", nil
	}
	tag := inference.Primary(strings.ReplaceAll(asked, "_", "-"))
	switch lower := strings.ToLower(asked); {
	case tag == "tl":
		tag = "fil"
	case strings.HasPrefix(lower, "zh-yue"):
		tag = "yue"
	}
	for _, l := range languages {
		if l.tag == tag || strings.EqualFold(l.name, asked) {
			return l.name, nil
		}
	}
	return "", fmt.Errorf("language %q: this model hears %s", asked, strings.Join(languageTags(), ", "))
}

// languageTag returns the tag of a name that the model wrote; "" if it is none of its languages.
func languageTag(name string) string {
	for _, l := range languages {
		if l.name == name {
			return l.tag
		}
	}
	return ""
}
