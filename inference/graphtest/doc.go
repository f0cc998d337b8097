// Package graphtest holds the tests of models/graph that need a runtime: it
// builds the graphs from a tiny checkpoint, runs them on ONNX Runtime and
// compares what comes out with what the official code computed. It has no
// code of its own.
package graphtest
