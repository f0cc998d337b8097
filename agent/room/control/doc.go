// Package control is how people in a LiveKit room read and steer the commentator: captions, records and alerts ([Captions]), and requests
// by RPC and on a data topic ([Control]).
//
// It sees the bot's presence through [Room], and decides on rights and limits, not on what is said.
package control
