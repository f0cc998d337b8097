// Package publish is what a participant sends into a LiveKit room: the delayed picture ([Relay]), the voice ([VoiceTrack]), the camera's
// sound ([SoundTrack]), and a camera of its own ([CameraPublisher]).
//
// Each is published when it has something to send, and survives every reconnect. The package decides neither on the content nor on its
// time, and never decodes or encodes.
package publish
