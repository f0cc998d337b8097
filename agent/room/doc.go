// Package room is the bot's presence in a LiveKit room, and the only importer
// of the LiveKit client.
//
// A [Supervisor] keeps the bot in a room over any number of connections of the
// client library. The watched track ([Watcher]), the delayed copy ([Relay]) and
// the voice ([VoiceTrack]) survive every reconnect. A [CameraPublisher] publishes
// a camera the same way.
//
// The package never decides on comments, never decodes or encodes, and never
// delays a picture.
package room
