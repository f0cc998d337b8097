package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/livekit/protocol/auth"
	"github.com/livekit/protocol/livekit"
	"google.golang.org/protobuf/proto"

	"touchline/internal/backoff"
)

const (
	// registerTimeout bounds dialling and the wait for the register reply; the server itself waits 10 s.
	registerTimeout = 10 * time.Second
	writeTimeout    = 5 * time.Second
	// pingEvery is the ping interval; a connection without data for silentFor is closed.
	pingEvery = 10 * time.Second
	silentFor = 35 * time.Second
	// reportEvery is the interval of load reports; every change is reported at once too.
	reportEvery = 2500 * time.Millisecond
	// maxFrame bounds a message of the server in bytes: metadata of 512 KiB, a room and a participant.
	maxFrame = 4 << 20
	// firstWait and maxWait bound the wait between two attempts to reach the server.
	firstWait = 100 * time.Millisecond
	maxWait   = 10 * time.Second
)

var (
	// ErrRefused is returned by Run when the server refuses the keys at the first attempt.
	ErrRefused = errors.New("the LiveKit server refused this worker; check LIVEKIT_API_KEY, LIVEKIT_API_SECRET and this machine's clock")

	errAway   = errors.New("not connected to the LiveKit server")
	errSilent = errors.New("the server has not answered pings")
)

// link is one websocket to the server.
type link struct {
	conn *websocket.Conn
	// lastMessage is the time of the server's last message.
	lastMessage atomic.Pointer[time.Time]

	mu sync.Mutex // guards writing
}

func (l *link) received() {
	now := time.Now()
	l.lastMessage.Store(&now)
}

// silent reports whether the server has sent nothing for too long, by the monotonic clock.
func (l *link) silent(now time.Time) bool { return now.Sub(*l.lastMessage.Load()) > silentFor }

func (l *link) send(m *livekit.WorkerMessage) error {
	data, err := proto.Marshal(m)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = l.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // always nil
		err = l.conn.WriteMessage(websocket.BinaryMessage, data)
	}
	if err != nil {
		return fmt.Errorf("write a message to the server: %w", err)
	}
	return nil
}

// stayConnected keeps the worker registered until ctx ends; jobs get the other
// context. It returns an error only when the first attempt is refused.
func (w *Worker) stayConnected(ctx, jobs context.Context) error {
	wait := backoff.Server(firstWait, maxWait)
	everIn := false
	for {
		began := time.Now()
		in, err := w.session(ctx, jobs)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // errors of the shutdown do not matter
		}
		var stood time.Duration
		if in {
			everIn, stood = true, time.Since(began)
		}
		if errors.Is(err, ErrRefused) && !everIn {
			return err
		}
		delay := wait.Lost(stood, time.Now(), rand.Float64())
		w.log.Warn().Err(err).Int64("retry_in_ms", delay.Milliseconds()).Msg("reconnecting to the server")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// dial opens the websocket.
func (w *Worker) dial(ctx context.Context) (*websocket.Conn, error) {
	token, err := auth.NewAccessToken(w.opts.APIKey, w.opts.APISecret).
		SetVideoGrant(&auth.VideoGrant{Agent: true}).SetValidFor(time.Hour).ToJWT()
	if err != nil {
		return nil, fmt.Errorf("sign the worker's token: %w", err)
	}
	dialer := websocket.Dialer{HandshakeTimeout: registerTimeout}
	conn, resp, err := dialer.DialContext(ctx, w.socketURL, http.Header{"Authorization": {"Bearer " + token}})
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	switch {
	case err == nil:
		return conn, nil
	case resp != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		return nil, fmt.Errorf("%w (status %d%s)", ErrRefused, resp.StatusCode, clockHint(resp.Header, time.Now()))
	case resp != nil:
		return nil, fmt.Errorf("register with the server: status %d; check that the URL is that of a LiveKit server", resp.StatusCode)
	default:
		return nil, fmt.Errorf("register with the server: %w", err)
	}
}

// session runs one connection until it ends. in reports whether the worker was registered.
func (w *Worker) session(ctx, jobs context.Context) (in bool, err error) {
	conn, err := w.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second)) // politeness
		_ = conn.Close()
	})()
	conn.SetReadLimit(maxFrame)
	l := &link{conn: conn}
	l.received()
	conn.SetPongHandler(func(string) error { l.received(); return nil })

	if err := l.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_Register{Register: w.registration()}}); err != nil {
		return false, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(registerTimeout)); err != nil {
		return false, fmt.Errorf("register with the server: %w", err)
	}
	// In reverse order: forget the connection, end keepAlive, wait for it.
	over := make(chan struct{})
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer close(over)
	defer w.detach(l)
	for {
		kind, data, err := conn.ReadMessage()
		if err != nil {
			if !in {
				return false, fmt.Errorf("register with the server: %w", err)
			}
			if l.silent(time.Now()) {
				err = errSilent
			}
			return true, fmt.Errorf("read from the server: %w", err)
		}
		l.received()
		if kind != websocket.BinaryMessage {
			continue // of a later protocol; this one is binary
		}
		msg := decode(data)
		if r := msg.GetRegister(); r != nil && !in {
			in = true
			if err := conn.SetReadDeadline(time.Time{}); err != nil {
				return in, fmt.Errorf("register with the server: %w", err)
			}
			w.attach(l, r)
			keeping.Go(func() { w.keepAlive(ctx, l, over) })
			continue
		}
		w.handle(jobs, msg)
	}
}

// decode reads a frame. Unreadable frames and unknown messages become a message without content.
func decode(data []byte) *livekit.ServerMessage {
	var m livekit.ServerMessage
	if err := proto.Unmarshal(data, &m); err != nil {
		return &livekit.ServerMessage{}
	}
	return &m
}

func (w *Worker) registration() *livekit.RegisterWorkerRequest {
	return &livekit.RegisterWorkerRequest{
		Type: w.opts.JobType, AgentName: w.opts.AgentName, Version: w.opts.Version,
		PingInterval: uint32(pingEvery / time.Second), Deployment: w.opts.Deployment,
		AllowedPermissions: &livekit.ParticipantPermission{
			CanPublish: true, CanSubscribe: true, CanPublishData: true, CanUpdateMetadata: true,
		},
	}
}

// attach makes a registered connection the present one and reports the running jobs.
func (w *Worker) attach(l *link, r *livekit.RegisterWorkerResponse) {
	w.mu.Lock()
	w.link, w.id, w.server = l, r.GetWorkerId(), r.GetServerInfo()
	w.registrations++
	running := slices.Collect(maps.Keys(w.jobs))
	unreported := w.unreported
	w.unreported = nil
	w.mu.Unlock()
	w.log.Info().Str("worker", r.GetWorkerId()).Str("server", r.GetServerInfo().GetVersion()).Int("jobs", len(running)).
		Str("agent", w.opts.AgentName).Int("slots", w.opts.Slots).Msg("registered with the server")
	if len(running) > 0 {
		// The open-source server ignores it; LiveKit Cloud moves the jobs to this connection.
		w.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_MigrateJob{
			MigrateJob: &livekit.MigrateJobRequest{JobIds: running},
		}})
	}
	for _, u := range unreported {
		w.updateJob(u)
	}
	w.report(time.Now())
}

// detach drops an ended connection and its offers.
func (w *Worker) detach(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link != l {
		return
	}
	w.link, w.lostAt = nil, time.Now()
	for id := range w.offers {
		w.dropOfferLocked(id)
	}
}

// keepAlive reports the load and pings until the connection is over.
func (w *Worker) keepAlive(ctx context.Context, l *link, over <-chan struct{}) {
	report, ping := time.NewTicker(reportEvery), time.NewTicker(pingEvery)
	defer report.Stop()
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-w.changed:
			w.report(time.Now())
		case <-report.C:
			w.report(time.Now())
		case now := <-ping.C:
			if l.silent(now) {
				_ = l.conn.Close()
				return
			}
			w.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_Ping{Ping: &livekit.WorkerPing{Timestamp: now.UnixMilli()}}})
			_ = l.conn.WriteControl(websocket.PingMessage, nil, now.Add(time.Second)) // the next read returns the error
		}
	}
}

// send writes to the present connection and closes it on an error. It reports
// whether the message was written.
func (w *Worker) send(m *livekit.WorkerMessage) bool {
	w.mu.Lock()
	l := w.link
	w.mu.Unlock()
	if l == nil {
		return false
	}
	if err := l.send(m); err != nil {
		w.log.Debug().Err(err).Msg("message not sent")
		_ = l.conn.Close()
		return false
	}
	return true
}

// maxUnreported bounds the job updates that wait for a connection.
const maxUnreported = 256

// updateJob reports the status of a job, now or after the next registration.
func (w *Worker) updateJob(u *livekit.UpdateJobStatus) {
	if w.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_UpdateJob{UpdateJob: u}}) {
		return
	}
	w.mu.Lock()
	if len(w.unreported) < maxUnreported {
		w.unreported = append(w.unreported, u)
	}
	w.mu.Unlock()
}

// report sends the load to the server.
func (w *Worker) report(now time.Time) {
	load, full, jobs := w.fullness(now)
	status := livekit.WorkerStatus_WS_AVAILABLE
	if full {
		status = livekit.WorkerStatus_WS_FULL
	}
	w.send(&livekit.WorkerMessage{Message: &livekit.WorkerMessage_UpdateWorker{UpdateWorker: &livekit.UpdateWorkerStatus{
		Status: &status, Load: float32(load), JobCount: uint32(jobs),
	}}})
}
