// Package sight is an engine with eyes on a CPU: a small pre-trained network finds people, vehicles and animals, another one finds and
// reads text. Package facts follows what they find, and tells it in sentences whose facts were measured.
package sight
