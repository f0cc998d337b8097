package pacing

// State returns the present state.
func (g *Gate) State() GateState { return g.state }
