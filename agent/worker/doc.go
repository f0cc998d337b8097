// Package worker lets one process serve many rooms of a LiveKit server: it
// registers as an agent worker, takes the jobs that the server offers, and
// hands its rooms over when it is drained.
//
// It owns the websocket to the server, the slots of this process, and the lifetime
// of each job. The job itself is behind [Runner]: the package never joins a room.
// It also dispatches again for rooms that lost their agent, which the open-source
// server does not: see [Options].WatchEvery.
//
// Everything here runs inside [Worker.Run].
package worker
