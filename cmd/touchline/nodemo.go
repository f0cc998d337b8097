//go:build nodemo

package main

// demoCommand is empty: this program was built without the LiveKit server.
type demoCommand struct{}
