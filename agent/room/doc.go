// Package room is the bot's presence in a LiveKit room, and the only importer
// of the LiveKit client.
//
// A [Supervisor] joins, stays, and comes back: a connection of the client
// library is disposable, and whatever outlives one lives here. It offers the
// watched track ([Watcher]), the delayed copy ([Relay]) and the voice
// ([VoiceTrack]) as objects that survive every reconnect. A [CameraPublisher]
// brings a picture into a room the same way.
//
// The package decides nothing about what is said or when. It never decodes,
// never encodes, and never holds a picture back.
package room
