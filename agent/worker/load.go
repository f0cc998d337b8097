package worker

// fullLoad is the load at which the server offers a worker no more jobs: the default of its setting agents.target_load.
const fullLoad = 0.7

// scaledLoad returns the load to report: the larger of the used share of the slots
// and the machine's load, scaled so that full is fullLoad, and at most 1.
func scaledLoad(taken, places int, machine float64) (load float64, full bool) {
	fullness := max(float64(taken)/float64(places), machine, 0)
	return min(fullLoad*fullness, 1), fullness >= 1
}
