package prompt

import "touchline/inference"

// in returns the hint in the language of the answer, in English where there is none; "" for no hint. All but the
// English ones were written and checked by machine alone.
func (h lengthHint) in(tag string) string {
	if h == hintNone {
		return ""
	}
	return LengthHints(tag)[h-hintMinimal]
}

// LengthHints returns what a prompt says of the length of a comment, from the shortest to the longest, in the language of a BCP 47
// tag, or in English if there is none in that language.
func LengthHints(tag string) [4]string {
	words, ok := hintWords()[inference.Primary(tag)]
	if !ok {
		words = hintWords()["en"]
	}
	return words
}

// hintWords returns the hints from hintMinimal to hintLong by language.
func hintWords() map[string][4]string {
	return map[string][4]string{
		"en": {"Say it in six words or fewer.", "One short sentence.", "One or two short sentences.", "Two or three sentences."},
		"es": {"Dilo en seis palabras o menos.", "Una frase corta.", "Una o dos frases cortas.", "Dos o tres frases."},
		"zh": {"用十个字以内说完。", "一个短句。", "一到两个短句。", "两到三句话。"},
		"fr": {"Dis-le en six mots au plus.", "Une phrase courte.", "Une ou deux phrases courtes.", "Deux ou trois phrases."},
		"de": {"Sag es in höchstens sechs Wörtern.", "Ein kurzer Satz.", "Ein oder zwei kurze Sätze.", "Zwei oder drei Sätze."},
		"it": {"Dillo in sei parole al massimo.", "Una frase breve.", "Una o due frasi brevi.", "Due o tre frasi."},
		"pt": {"Diga em até seis palavras.", "Uma frase curta.", "Uma ou duas frases curtas.", "Duas ou três frases."},
		"nl": {"Zeg het in hoogstens zes woorden.", "Eén korte zin.", "Eén of twee korte zinnen.", "Twee of drie zinnen."},
		"ja": {"15文字以内で言ってください。", "短い一文で。", "短い一、二文で。", "二、三文で。"},
		"ko": {"여섯 단어 이내로 말하세요.", "짧은 한 문장으로.", "짧은 한두 문장으로.", "두세 문장으로."},
	}
}
