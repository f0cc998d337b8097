package ort

// LibraryName is the file name that Locate searches for.
const LibraryName = libraryName

// DefaultFolders returns the folders that Locate searches.
func DefaultFolders() []string { return defaultFolders() }

// Lost reports whether the CUDA context is lost.
func (d *Device) Lost() bool { return d.lost.Load() }

// Host reports whether the data is in host memory.
func (t *Tensor) Host() bool { return t.place.memory.host }

// Inputs describes the inputs in the order of the graph.
func (s *Session) Inputs() []ValueInfo { return s.inputs }

// Outputs describes the outputs in the order of the graph.
func (s *Session) Outputs() []ValueInfo { return s.outputs }

// Version returns the library's version, such as 1.30.0.
func (r *Runtime) Version() string { return r.lib.version }

// Path returns the library file.
func (r *Runtime) Path() string { return r.path }

// WithCUDA adds options of the CUDA provider.
func (o SessionOptions) WithCUDA(options map[string]string) SessionOptions {
	o.cuda = options
	return o
}
