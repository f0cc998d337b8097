// Package worker lets one process serve many rooms of a LiveKit server: it registers as an agent worker, accepts jobs from
// the server, and hands its rooms over when it is drained.
//
// It owns the websocket to the server, the slots of this process, and the lifetime of each job. A [Runner] does the job
// itself: the package never joins a room. It also dispatches again for rooms that lost their agent, which the
// open-source server does not do: see [Options].WatchEvery.
//
// Everything runs inside [Worker.Run].
package worker
