package worker

// fullLoad is the load at which the server gives a worker no more jobs: the
// default of its setting agents.target_load.
const fullLoad = 0.7

// scaledLoad turns how full this worker is into what the server is told: the
// fuller of its places and its machine (both 1 when full) decides, and full is
// fullLoad. It never exceeds 1.
func scaledLoad(taken, places int, machine float64) (load float64, full bool) {
	fullness := max(float64(taken)/float64(places), machine, 0)
	return min(fullLoad*fullness, 1), fullness >= 1
}
