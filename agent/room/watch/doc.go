// Package watch is the receiving side of the bot in a LiveKit room: the watched track as access units ([Watcher]), its sound, and
// people's microphones.
//
// A [Follower] chooses tracks, subscribes to them, requests key frames, and recovers stalled tracks. The package decodes nothing and
// sends nothing.
package watch
