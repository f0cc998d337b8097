package configs

// CycleSpan is cycleSpan for tests.
func (c Config) CycleSpan() float64 { return c.cycleSpan() }

// CycleTokens is cycleTokens for tests.
func (c Config) CycleTokens() int { return c.cycleTokens() }
