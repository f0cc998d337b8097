//go:build !integration

package main

// weights are the formats of TestSynth; the integration tests add int4.
const weights = "fp32"
