// Package publish is the sending side of a participant in a LiveKit room: the delayed picture ([Relay]), the voice ([VoiceTrack]), the
// camera's sound ([SoundTrack]), and a camera ([CameraPublisher]).
//
// Each track is published at its first packet and survives every reconnect. The package decides neither on the content nor on its time,
// and never decodes or encodes.
package publish
