// Package apart runs a LiveKit server for tests and for a stage. Under the race detector the server has a process of its own, because
// it has races, which would fail the tests. touchline-bench without the race detector has no such process.
package apart
