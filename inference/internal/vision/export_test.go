package vision

// Levels returns the names of the levels of this machine, plain Go first.
func Levels() []string { return []string{"plain", "avx2", "vnni"}[:bestLevel()+1] }

// UseLevel sets the level of p.
func (p *Preprocessor) UseLevel(i int) { p.scaler.level = level(i) }

// DefaultConfig returns the constants of MiniCPM-o 4.5.
func DefaultConfig() Config {
	half := [3]float64{.5, .5, .5}
	return Config{PatchSize: 14, Scale: 448, MaxSlices: 9, PositionTable: 70, Mean: half, Std: half}
}
