package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/inference"
	"touchline/inference/engine"
)

var errLost = errors.New("the device is gone")

// fragile is a model with a device that may be lost.
type fragile struct {
	model

	lost   chan struct{}
	closed func() // is called by Close
}

func (f *fragile) Lost() <-chan struct{} { return f.lost }

func (f *fragile) Close() error {
	f.closed()
	return f.model.Close()
}

func TestLostDeviceEndsRun(t *testing.T) {
	for name, tt := range map[string]struct {
		freeing time.Duration
		after   time.Duration // of the loss, Run returns
		message string
	}{
		"freed":  {0, time.Second, "the device is gone"},
		"slow":   {2 * time.Second, 3 * time.Second, "the device is gone"},
		"frozen": {time.Minute, 4 * time.Second, "the device is gone; freeing it took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &script{t: t}
				m := &fragile{model{e}, make(chan struct{}), func() { time.Sleep(tt.freeing) }}
				var reported []error
				k, err := engine.New(func(ctx context.Context, progress engine.Progress) (inference.Model, error) {
					_, err := e.load(ctx, progress)
					return m, err
				}, engine.Options{Preload: true, ErrLost: errLost, OnLost: func(err error) { reported = append(reported, err) }})
				require.NoError(t, err)
				require.Nil(t, k.Loaded())
				ended := make(chan error, 1)
				go func() { ended <- k.Run(t.Context()) }()
				time.Sleep(10 * time.Second)
				require.Same(t, m, k.Loaded())

				start := time.Now()
				e.set(func() { e.sick = true })
				close(m.lost)
				time.Sleep(500 * time.Millisecond)
				require.Empty(t, ended, "probes see it before the end")
				require.Equal(t, inference.PhaseFailed, k.Status().Phase)
				require.NoError(t, k.Close(), "returns at once")
				require.Equal(t, 500*time.Millisecond, time.Since(start))
				err = <-ended
				require.ErrorIs(t, err, errLost)
				require.EqualError(t, err, tt.message)
				require.Equal(t, []error{errLost}, reported)
				require.Equal(t, tt.after, time.Since(start).Round(time.Second))
				time.Sleep(time.Hour) // the frozen one is freed at last
			})
		})
	}
}

func TestLoadOnALostDeviceEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &script{t: t, fail: fmt.Errorf("copy weights: %w", errLost)}
		k, err := engine.New(e.load, engine.Options{Preload: true, ErrLost: errLost})
		require.NoError(t, err)
		start := time.Now()
		err = k.Run(t.Context())
		require.ErrorIs(t, err, errLost)
		require.Equal(t, 6*time.Second, time.Since(start), "five seconds of loading, one in which probes see it")
	})
}

func TestFirstLoadFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no such file")
		e := &script{t: t, fail: broken}
		k, err := engine.New(e.load, engine.Options{Preload: true, FirstLoadFatal: func() bool { return true }})
		require.NoError(t, err)
		require.EqualError(t, k.Run(t.Context()), "load the model: no such file")
		require.NoError(t, k.Close())
	})
}

func TestLaterLoadIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &script{t: t}
		k, err := engine.New(e.load, engine.Options{
			Preload: true, IdleUnload: time.Minute, FirstLoadFatal: func() bool { return true },
		})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- k.Run(t.Context()) }()
		time.Sleep(2 * time.Minute)
		require.Nil(t, k.Loaded(), "unloaded")
		e.set(func() { e.fail = errors.New("no such file") })
		s, err := k.NewSession()
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, inference.PhaseFailed, k.Status().Phase)
		require.Empty(t, ended)
		require.NoError(t, s.Close())
		require.NoError(t, k.Close())
		require.NoError(t, <-ended)
	})
}
