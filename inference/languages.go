package inference

import "strings"

// spoken are the languages of speech recognition: the English name, as recognizers write it, and the tag. Alternative names follow the
// usual one.
const spoken = `afrikaans af|albanian sq|amharic am|arabic ar|armenian hy|assamese as|azerbaijani az|bashkir ba|basque eu|belarusian be|
bengali bn|bosnian bs|breton br|bulgarian bg|cantonese yue|catalan ca|chinese zh|croatian hr|czech cs|danish da|
dutch nl|english en|estonian et|faroese fo|filipino fil|finnish fi|french fr|galician gl|georgian ka|german de|greek el|
gujarati gu|haitian ht|haitian creole ht|hausa ha|hawaiian haw|hebrew he|hindi hi|hungarian hu|icelandic is|indonesian id|italian it|
japanese ja|javanese jv|kannada kn|kazakh kk|khmer km|korean ko|lao lo|latin la|latvian lv|lingala ln|lithuanian lt|luxembourgish lb|
macedonian mk|malagasy mg|malay ms|malayalam ml|maltese mt|maori mi|marathi mr|mongolian mn|myanmar my|nepali ne|
norwegian no|nynorsk nn|occitan oc|pashto ps|persian fa|polish pl|portuguese pt|punjabi pa|pushto ps|romanian ro|russian ru|
sanskrit sa|serbian sr|shona sn|sindhi sd|sinhala si|sinhalese si|slovak sk|slovenian sl|somali so|spanish es|sundanese su|swahili sw|
swedish sv|tagalog tl|tajik tg|tamil ta|tatar tt|telugu te|thai th|tibetan bo|turkish tr|turkmen tk|ukrainian uk|urdu ur|uzbek uz|
valencian ca|vietnamese vi|welsh cy|yiddish yi|yoruba yo|
burmese my|castilian es|flemish nl|mandarin zh|panjabi pa|moldavian ro`

// languageTable calls f for each name and tag of spoken until it returns false.
func languageTable(f func(name, tag string) bool) {
	for entry := range strings.SplitSeq(spoken, "|") {
		entry = strings.TrimSpace(entry)
		i := strings.LastIndexByte(entry, ' ')
		if !f(entry[:i], entry[i+1:]) {
			return
		}
	}
}

// IsLanguageTag reports whether s has the form of a BCP 47 tag: letters and digits in
// parts of at most eight, 35 characters in all (RFC 5646, section 4.4.1).
func IsLanguageTag(s string) bool {
	if s == "" || len(s) > 35 {
		return false
	}
	for part := range strings.SplitSeq(s, "-") {
		bad := strings.ContainsFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
		})
		if part == "" || len(part) > 8 || bad {
			return false
		}
	}
	return true
}

// LanguageTag returns the BCP 47 tag of a language, given as a tag ("en", "pt-BR") or by its English name in any case; "" if unknown.
func LanguageTag(language string) (tag string) {
	language = strings.TrimSpace(language)
	if languageTag.MatchString(language) && LanguageName(language) != "" {
		return language
	}
	languageTable(func(name, t string) bool {
		if strings.EqualFold(name, language) {
			tag = t
		}
		return tag == ""
	})
	return tag
}

// LanguageName returns the English name of a tag's language in lower case; "" if unknown.
func LanguageName(tag string) (name string) {
	if tag == "" {
		return ""
	}
	primary := Primary(tag)
	languageTable(func(n, t string) bool {
		if t == primary {
			name = n
		}
		return name == ""
	})
	return name
}
