package worker

import (
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// unhealthyAfter is how long a worker without jobs may be disconnected before its probe fails. With jobs the probe never
// fails, because a restart would end their rooms.
const unhealthyAfter = time.Minute

// protocolVersion of the worker protocol.
const protocolVersion = 1

// Handler answers probes as LiveKit's own agents do: GET / returns "OK", or 503
// while the worker cannot serve jobs, and GET /worker describes it. GET /readyz
// is the same as GET /.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	ready := func(rw http.ResponseWriter, _ *http.Request) {
		if why := w.unhealthy(time.Now()); why != "" {
			http.Error(rw, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(rw, "OK") // fails if the client disconnected
	}
	mux.HandleFunc("GET /{$}", ready)
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /worker", func(rw http.ResponseWriter, _ *http.Request) {
		s := w.State()
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(map[string]any{ // as above
			"worker_type":      w.opts.JobType.String(),
			"agent_name":       w.opts.AgentName,
			"active_jobs":      s.Jobs,
			"sdk_version":      w.opts.Version,
			"worker_load":      s.Load,
			"protocol_version": protocolVersion,
			"worker_id":        s.ID,
			"slots":            s.Slots,
			"draining":         s.Draining,
			"registered":       s.Registered,
		})
	})
	return mux
}

// unhealthy returns why this worker cannot serve jobs; "" when it can.
func (w *Worker) unhealthy(now time.Time) string {
	if err := w.notReady(); err != nil {
		return err.Error()
	}
	s := w.State()
	switch {
	case s.Registered || s.Jobs > 0 || s.Draining:
		return ""
	case s.Registrations == 0:
		return "not registered with the LiveKit server yet"
	case now.Sub(s.AwaySince) > unhealthyAfter:
		return "away from the LiveKit server since " + s.AwaySince.UTC().Format(time.RFC3339)
	}
	return ""
}
