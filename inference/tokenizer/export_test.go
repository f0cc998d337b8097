package tokenizer

import "hash/maphash"

// Words splits a text as Encode does before merging.
func Words(s string) (out []string) {
	for s != "" {
		n := split(s)
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// MergeShort merges a word with the algorithm for short words.
func (t *Tokenizer) MergeShort(word string) []int32 { return t.merge(nil, word) }

// MergeLong merges a word with the algorithm for long words.
func (t *Tokenizer) MergeLong(word string) []int32 { return t.mergeLong(nil, word) }

// MergeByDefinition merges a word by comparing all pairs before each merge.
func (t *Tokenizer) MergeByDefinition(word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, t.byteIDs[word[i]])
	}
	for {
		best, at := int32(unmerged), -1
		for i := range max(len(ids)-1, 0) {
			if r := t.merges.rank(ids[i], ids[i+1]); r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return ids
		}
		ids[at] = t.merges.slot(ids[at], ids[at+1]).id
		ids = append(ids[:at+1], ids[at+2:]...)
	}
}

// ForgetWords empties the cache.
func (t *Tokenizer) ForgetWords() { t.words = &wordCache{seed: maphash.MakeSeed()} }
