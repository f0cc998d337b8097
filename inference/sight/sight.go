// Package sight is an engine with eyes on a CPU: a small pre-trained network finds people, vehicles and animals, another one finds and
// reads text, and what they find is followed over time and told in sentences whose facts were measured.
package sight

// Box is one thing that the detector found in a picture. Coordinates are shares of the picture, 0 to 1, from the top left corner.
type Box struct {
	Class string  `json:"class"` // a name of COCO's 80 classes
	Score float32 `json:"score"` // 0 to 1
	X0    float32 `json:"x0"`
	Y0    float32 `json:"y0"`
	X1    float32 `json:"x1"`
	Y1    float32 `json:"y1"`
}
