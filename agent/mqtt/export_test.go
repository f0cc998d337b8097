package mqtt

// Set is set.
func (s *Sender) Set(topic string, payload []byte) { s.set(topic, payload) }
