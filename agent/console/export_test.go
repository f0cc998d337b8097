package console

import "errors"

// ParseJSON is parseJSON; status is what a refusal answers, 0 when it passed.
func ParseJSON(body []byte, v any) (status int, err error) {
	err = parseJSON(body, v, false)
	if p, ok := errors.AsType[*problem](err); ok {
		status = p.status
	}
	return status, err
}

// HostName is hostName.
func HostName(host string) (string, bool) { return hostName(host) }

// DataLines is dataLines.
func DataLines(text string) []byte { return dataLines(text) }

// Bounds that tests reach.
const (
	QueueSize  = queueSize
	ReplaySize = replaySize
	MaxStreams = maxStreams
	FrameQueue = frameQueue
)
