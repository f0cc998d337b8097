//go:build nodemo

package main

import "errors"

// demoCommand is empty: this program was built without the LiveKit server.
type demoCommand struct{}

// Run returns an error that names the full program.
func (*runCmd) Run() error {
	return errors.New("run: this program was built without a LiveKit server (touchline-slim); use the full program, touchline, " +
		"or `touchline join` with a server of your own")
}
