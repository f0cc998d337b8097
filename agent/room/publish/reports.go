package publish

import (
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"

	"touchline/internal/ticks"
)

// captureReports corrects the RTCP sender reports of published tracks to the capture times of picture and sound (RFC 3550 section
// 6.4.1): with send times, an encoder in one of the two paths would put them out of sync. It is a factory of interceptors, which must
// precede the interceptor that makes the reports.
type captureReports struct {
	mu     sync.Mutex
	tracks [2]captured // picture and sound
}

// captured is the newest sample sent on a track.
type captured struct {
	ssrc, timestamp uint32
	rate            int64 // of timestamps, in Hz
	at              time.Time
}

const (
	pictureReports = iota
	soundReports
)

func (c *captureReports) note(track int, ssrc, timestamp uint32, rate int64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracks[track] = captured{ssrc, timestamp, rate, at}
}

// NewInterceptor implements interceptor.Factory.
func (c *captureReports) NewInterceptor(string) (interceptor.Interceptor, error) {
	return &captureReporter{reports: c}, nil
}

type captureReporter struct {
	interceptor.NoOp

	reports *captureReports
}

// BindRTCPWriter implements interceptor.Interceptor.
func (r *captureReporter) BindRTCPWriter(next interceptor.RTCPWriter) interceptor.RTCPWriter {
	return interceptor.RTCPWriterFunc(func(packets []rtcp.Packet, a interceptor.Attributes) (int, error) {
		for _, p := range packets {
			if sr, ok := p.(*rtcp.SenderReport); ok {
				r.reports.correct(sr, time.Now())
			}
		}
		return next.Write(packets, a)
	})
}

// correct corrects a report that was made now, by any wall clock.
func (c *captureReports) correct(sr *rtcp.SenderReport, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tracks {
		if t.ssrc == sr.SSRC && !t.at.IsZero() {
			sr.RTPTime = t.timestamp + uint32(ticks.Count(now.Sub(t.at), t.rate)) // it wraps
		}
	}
}
