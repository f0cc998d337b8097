// Package watch is what the bot receives from a LiveKit room: the watched track as access units ([Watcher]), the sound beside it, and
// people's microphones.
//
// A [Follower] chooses and subscribes, requests key frames, and recovers what stalls. The package decodes nothing, and does not know what
// is sent.
package watch
