package remote

import "time"

// SetNow replaces the clock of refused schemas.
func (m *Model) SetNow(now func() time.Time) { m.now = now }
