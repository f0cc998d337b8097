package inference

// Names of engines. EngineAuto is a choice among them.
const (
	EngineAuto    = "auto"
	EngineScene   = "scene"
	EngineNano    = "nano"
	EngineSight   = "sight"
	EngineRemote  = "remote"
	EngineMiniCPM = "minicpmo"
)

// Engines lists the engines in display order; package bot creates them.
func Engines() []string {
	return []string{EngineScene, EngineNano, EngineSight, EngineRemote, EngineMiniCPM}
}

// EngineChoices are the values of inference.engine.
func EngineChoices() []string { return append([]string{EngineAuto}, Engines()...) }
