// Package worker lets one process serve many rooms of a LiveKit server: it
// registers as an agent worker, takes the jobs that the server offers, and
// hands its rooms over when it has to go.
//
// It owns the websocket to the server, the places that this process has for
// rooms, and the lifetime of each job. What a job does is behind [Runner]: the
// package never joins a room, never sees a picture and never speaks. It also
// looks after rooms that lost their agent, which the open-source server does
// not: see [Options].WatchEvery.
//
// Whoever calls [Worker.Run] owns everything that runs here.
package worker
