package audioapi

import (
	"cmp"
	"slices"
	"unicode"

	"touchline/inference"
)

// alphabet is a script with the languages that use it, the most likely one first.
type alphabet struct {
	script    *unicode.RangeTable
	languages []string
}

// alphabets are the scripts that voices for Latin letters have no sounds for.
var alphabets = []alphabet{ //nolint:gochecknoglobals // a table
	{unicode.Hiragana, []string{"ja"}},
	{unicode.Katakana, []string{"ja"}},
	{unicode.Hangul, []string{"ko"}},
	{unicode.Han, []string{"zh", "yue", "ja", "ko"}},
	{unicode.Cyrillic, []string{"ru", "uk", "bg", "sr", "mk", "be", "kk", "ky", "mn", "tt", "ba", "cv", "tg", "uz"}},
	{unicode.Greek, []string{"el"}},
	{unicode.Hebrew, []string{"he", "yi"}},
	{unicode.Arabic, []string{"ar", "fa", "ur", "ps", "ug", "sd", "ku"}},
	{unicode.Devanagari, []string{"hi", "mr", "ne", "sa", "kok"}},
	{unicode.Bengali, []string{"bn", "as"}},
	{unicode.Gurmukhi, []string{"pa"}},
	{unicode.Gujarati, []string{"gu"}},
	{unicode.Oriya, []string{"or"}},
	{unicode.Tamil, []string{"ta"}},
	{unicode.Telugu, []string{"te"}},
	{unicode.Kannada, []string{"kn"}},
	{unicode.Malayalam, []string{"ml"}},
	{unicode.Sinhala, []string{"si"}},
	{unicode.Thai, []string{"th"}},
	{unicode.Lao, []string{"lo"}},
	{unicode.Myanmar, []string{"my"}},
	{unicode.Khmer, []string{"km"}},
	{unicode.Georgian, []string{"ka"}},
	{unicode.Armenian, []string{"hy"}},
	{unicode.Ethiopic, []string{"am", "ti"}},
	{unicode.Cherokee, []string{"chr"}},
}

// spoken returns the language to speak a text in: the given one, unless most letters of the text have no sounds in it. Kana make a text
// Japanese, even among more Chinese characters.
func spoken(text, language string) string {
	counts := make([]int, len(alphabets))
	letters, foreign := 0, 0
	for _, r := range text {
		if !unicode.IsLetter(r) {
			continue
		}
		letters++
		if i := slices.IndexFunc(alphabets, func(a alphabet) bool { return unicode.Is(a.script, r) }); i >= 0 {
			counts[i]++
			foreign++
		}
	}
	if 2*foreign <= letters {
		return language
	}
	most := slices.Index(counts, slices.Max(counts))
	if counts[0]+counts[1] > 0 && counts[0]+counts[1]+counts[3] >= counts[most] {
		most = 0
	}
	if known := alphabets[most].languages; !slices.Contains(known, inference.Primary(cmp.Or(language, "en"))) {
		return known[0]
	}
	return language
}
