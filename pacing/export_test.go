package pacing

// State returns the current state.
func (g *Gate) State() GateState { return g.state }
