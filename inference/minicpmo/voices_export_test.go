package minicpmo

import "touchline/models"

// ParseVoice reads the content of a voice's file.
func ParseVoice(content []byte, m *models.Manifest) (StoredVoice, error) {
	return parseVoice("voice", content, m)
}
