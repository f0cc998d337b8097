package publish

import "time"

// CameraAttribute is the attribute with a CameraState as JSON, on the participant of a camera from outside of LiveKit.
const CameraAttribute = "touchline.source"

// CameraState is the state that the participant of a camera publishes.
type CameraState struct {
	// State is connecting, live, waiting, stalled, failed or ended.
	State string `json:"state"`
	// Reason why it is not live, in words.
	Reason string `json:"reason,omitempty"`
	// Since when.
	Since time.Time `json:"since,omitzero"`
}
