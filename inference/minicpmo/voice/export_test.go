package voice

import "touchline/models"

// Parse reads the content of a voice's file.
func Parse(content []byte, m *models.Manifest) (Stored, error) {
	return parseVoice("voice", content, m)
}

// RingRows returns the rows that count before the n-th window of a turn, and where that is written.
func RingRows(prompt, n int) (rows []int, place int) {
	w := flowRing{prompt}
	for i := range prompt + growth {
		if w.counts(i, n) {
			rows = append(rows, i)
		}
	}
	return rows, w.place(n)
}
