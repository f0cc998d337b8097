package vision

// ToHalf is the rounding of the half-precision table.
func ToHalf(f float32) uint16 { return toHalf(f) }

// DisableVectors makes p use the plain Go passes, as other machines do.
func (p *Preprocessor) DisableVectors() { p.plain = true }
