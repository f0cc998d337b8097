package graph

import "touchline/models/onnx"

// Model returns the ONNX model that Encode encodes.
func (d *Description) Model(place func(Weight) (Location, error)) (onnx.Model, error) {
	return d.model(place)
}
