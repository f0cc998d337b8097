//go:build !race

package sfutest

const racing = false
