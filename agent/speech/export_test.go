package speech

// State returns the state of an utterance.
func (u *Utterance) State() State { return u.state }

// Wanted reports whether more sound of an utterance is wanted.
func (u *Utterance) Wanted() bool { return u.wanted() }
