// Package room is the bot's presence in a LiveKit room.
//
// A [Supervisor] keeps the bot in a room over any number of connections (package conn). The watched track ([Watcher]) survives every
// reconnect, as does what it sends (package publish). Captions and the requests of people are in package control.
//
// The package never decides on comments, never decodes or encodes, and never
// delays a picture.
package room
