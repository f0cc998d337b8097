package watch

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"touchline/internal/backoff"
	"touchline/internal/limit"
)

// countingSink counts packets.
type countingSink struct{ packets int }

func (*countingSink) Begin()                            {}
func (s *countingSink) WriteRTP(*rtp.Packet, time.Time) { s.packets++ }
func (*countingSink) SenderReport(time.Time, uint32)    {}
func (*countingSink) Close()                            {}

// TestFloodIsCut: of a track that floods, the bound is passed on.
func TestFloodIsCut(t *testing.T) {
	t.Parallel()
	sink, began := &countingSink{}, time.Unix(1000, 0)
	h := &audioSubscription{log: zerolog.Nop(), lost: new(atomic.Uint64), rate: limit.New[struct{}](soundRate, soundBurst)}
	h.setMicrophone(func() MicrophoneSink { return sink })
	const sent = 100_000
	for i := range sent { // 10 s
		h.deliver(&audioReader{}, &rtp.Packet{Payload: []byte{1, 2, 3}}, began.Add(time.Duration(i)*100*time.Microsecond))
	}
	require.InDelta(t, 10*soundRate+soundBurst, sink.packets, 1)
	require.EqualValues(t, sent-sink.packets, h.lost.Load())
}

// TestMicrophoneOpensAgain: a microphone that could not be opened is tried again, at growing intervals, until it opens.
func TestMicrophoneOpensAgain(t *testing.T) {
	t.Parallel()
	h := &audioSubscription{
		log: zerolog.Nop(), lost: new(atomic.Uint64), rate: limit.New[struct{}](soundRate, soundBurst),
		retry: backoff.Backoff{First: openRetry, Max: maxOpenRetry},
	}
	var opens []time.Duration
	sink, works, at := &countingSink{}, false, time.Unix(1000, 0)
	began := at
	h.setMicrophone(func() MicrophoneSink {
		opens = append(opens, at.Sub(began))
		if !works {
			return nil
		}
		return sink
	})
	speak := func(d time.Duration) {
		for end := at.Add(d); at.Before(end); at = at.Add(20 * time.Millisecond) {
			h.deliver(&audioReader{}, &rtp.Packet{Payload: []byte{1, 2, 3}}, at)
		}
	}
	speak(10 * time.Minute)
	require.GreaterOrEqual(t, len(opens), 10)
	require.LessOrEqual(t, len(opens), 30)
	require.Less(t, opens[1], 1100*time.Millisecond)
	for i := range opens[1:] {
		require.LessOrEqual(t, opens[i+1]-opens[i], maxOpenRetry+20*time.Millisecond)
	}
	works = true
	speak(maxOpenRetry + time.Second)
	require.NotZero(t, sink.packets)
	n := len(opens)
	speak(time.Minute)
	require.Len(t, opens, n)
}
