package speech

// State returns the state of an utterance.
func (u *Utterance) State() State { return u.state }
