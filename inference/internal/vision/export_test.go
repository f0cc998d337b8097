package vision

// Levels are the ways to resize that this machine has, plain Go first.
func Levels() []string { return []string{"plain", "avx2", "vnni"}[:bestLevel()+1] }

// UseLevel makes p resize one of these ways.
func (p *Preprocessor) UseLevel(i int) { p.level = level(i) }

// DefaultConfig is what MiniCPM-o 4.5 is published with.
func DefaultConfig() Config {
	half := [3]float64{.5, .5, .5}
	return Config{PatchSize: 14, Scale: 448, MaxSlices: 9, PositionTable: 70, Mean: half, Std: half}
}
