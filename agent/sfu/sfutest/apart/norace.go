//go:build !race

package apart

import (
	"context"

	"touchline/agent/sfu"
)

// Of returns how a server runs and when it is ready: in this process, as there is no race detector.
func Of(s *sfu.Server) (run, ready func(context.Context) error) { return s.Run, s.Ready }
