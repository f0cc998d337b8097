package qwen3asr

import (
	"fmt"
	"slices"
	"strings"

	"touchline/inference"
	"touchline/inference/internal/asrtext"
)

// languageTags returns the tags of the model's languages.
func languageTags() []string {
	return strings.Fields("zh en yue ar de fr es pt id it ko ru th vi ja tr hi ms nl sv da fi pl cs fil fa el ro hu mk")
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
	case languageTag(asked) != "":
		tag = languageTag(asked)
	}
	if !slices.Contains(languageTags(), tag) {
		return "", fmt.Errorf("language %q: this model hears %s", asked, strings.Join(languageTags(), ", "))
	}
	return asrtext.LanguageName(inference.LanguageName(tag)), nil
}

// languageTag returns the tag of a name that the model wrote; "" if it is none of its languages.
func languageTag(name string) string {
	tag := inference.LanguageTag(name)
	if !slices.Contains(languageTags(), tag) {
		return ""
	}
	return tag
}
