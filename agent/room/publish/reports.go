package publish

import (
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"

	"touchline/internal/ticks"
	"touchline/media/packet"
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

// correct corrects a report that was made a moment ago, by the same wall clock as now's. That may have been set since the capture.
func (c *captureReports) correct(sr *rtcp.SenderReport, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := now.Add(packet.NTPTime(sr.NTPTime).Sub(now))
	for _, t := range c.tracks {
		if t.ssrc == sr.SSRC && !t.at.IsZero() {
			sr.RTPTime = t.timestamp + uint32(ticks.Count(made.Sub(t.at), t.rate)) // it wraps
		}
	}
}
