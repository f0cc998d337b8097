// Package room is the bot's presence in a LiveKit room.
//
// A [Supervisor] keeps the bot in a room over any number of connections (package conn). It connects the receiving side (package
// watch), the sending side (package publish), and captions and requests (package control). All of them survive every reconnect.
//
// The package never decides on comments, never decodes or encodes, and never
// delays a picture.
package room
