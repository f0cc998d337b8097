package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"touchline/agent/worker"
)

// healthCmd probes a worker, for health checks of containers without an HTTP client.
type healthCmd struct {
	URL string `arg:"" optional:"" help:"Address of the probe; agent.worker.http of the settings without it."`
}

// healthTime bounds the request.
const healthTime = 5 * time.Second

// Run returns an error unless the probe responds with 200.
func (c *healthCmd) Run(ctx context.Context, a *app) error {
	at := c.URL
	if at == "" {
		var err error
		if at, err = probeURL(a.cfg.Agent.Worker.HTTP); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the worker at %s: %w", at, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		var at *url.Error // it repeats method and address
		if errors.As(err, &at) {
			err = at.Err
		}
		return fmt.Errorf("ask the worker at %s: %w; is `touchline agent` running here?", req.URL.Redacted(), err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		const most = 200
		why, _ := io.ReadAll(io.LimitReader(res.Body, most)) // the status is enough
		return fmt.Errorf("the worker at %s is not healthy: %s: %s", at, res.Status, strings.TrimSpace(string(why)))
	}
	return nil
}

// probeURL returns the URL, on this machine, of a worker that listens on an address.
func probeURL(listen string) (string, error) {
	if listen == worker.HTTPOff {
		return "", errors.New("agent.worker.http is off: name the address of a probe, as in `touchline health http://127.0.0.1:8081/`")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("agent.worker.http %q: expected HOST:PORT: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/"}).String(), nil
}
