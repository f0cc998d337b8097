package match

import "touchline/worlds/paint"

// The pitch in metres: x along it from the left goal line, y away from the
// camera, z up.
const (
	pitchLength = 105.0
	pitchWidth  = 68.0
	midX        = pitchLength / 2
	midY        = pitchWidth / 2
)

func (s Shot) camera() paint.Camera {
	switch s {
	case ShotLeft:
		return paint.NewCamera(paint.At(27, -52, 50), paint.At(27, 33, 0), 62)
	case ShotRight:
		return paint.NewCamera(paint.At(78, -52, 50), paint.At(78, 33, 0), 62)
	case ShotReplayLeft:
		return paint.NewCamera(paint.At(44, -30, 30), paint.At(18, 32, 0), 46)
	case ShotReplayRight:
		return paint.NewCamera(paint.At(61, -30, 30), paint.At(87, 32, 0), 46)
	case ShotWide, ShotCrowd:
	}
	return paint.NewCamera(paint.At(midX, -88, 66), paint.At(midX, 37, 0), 119)
}
