package worker_test

import (
	"context"
	"testing"

	"github.com/livekit/protocol/livekit"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"touchline/agent/worker"
)

func TestScaledLoad(t *testing.T) {
	tests := []struct {
		taken, places int
		machine, load float64
		full          bool
	}{
		{0, 10, 0, 0, false},
		{5, 10, 0, 0.35, false},
		{9, 10, 0.5, 0.63, false},
		{10, 10, 0, 0.7, true},
		{1, 10, 1, 0.7, true},
		{1, 10, 0.9, 0.63, false},
		{20, 10, 0, 1, true},
		{0, 10, -1, 0, false},
	}
	for _, tt := range tests {
		load, full := worker.Scaled(tt.taken, tt.places, tt.machine)
		require.InDelta(t, tt.load, load, 1e-9, "%+v", tt)
		require.Equal(t, tt.full, full, "%+v", tt)
	}
}

// instant serves a job by being done with it.
type instant struct{}

func (instant) Run(context.Context, worker.Job) error { return nil }

func frame(f *testing.F, m *livekit.ServerMessage) {
	f.Helper()
	data, err := proto.Marshal(m)
	require.NoError(f, err)
	f.Add(data)
}

func FuzzFrame(f *testing.F) {
	job := &livekit.Job{Id: "AJ_1", DispatchId: "AD_1", Room: &livekit.Room{Name: "r", Sid: "RM_1"}, Metadata: "{}"}
	frame(f, &livekit.ServerMessage{})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Register{Register: &livekit.RegisterWorkerResponse{WorkerId: "AW_1"}}})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Availability{Availability: &livekit.AvailabilityRequest{Job: job}}})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Availability{Availability: &livekit.AvailabilityRequest{}}})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Assignment{Assignment: &livekit.JobAssignment{Job: job}}})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Assignment{Assignment: &livekit.JobAssignment{}}})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Termination{Termination: &livekit.JobTermination{JobId: "AJ_1"}}})
	frame(f, &livekit.ServerMessage{Message: &livekit.ServerMessage_Pong{Pong: &livekit.WorkerPong{}}})
	f.Add([]byte{0x32, 0x00})
	f.Add([]byte{0xff, 0xff, 0xff})
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no request for participants
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := worker.New(worker.Options{URL: "ws://127.0.0.1:1", APIKey: "k", APISecret: "s", Slots: 2, Runner: instant{}})
		require.NoError(t, err)
		w.Frame(ctx, data)
		w.Rest()
		w.Frame(ctx, data)
		w.Rest()
		require.LessOrEqual(t, w.State().Jobs, 2)
	})
}
