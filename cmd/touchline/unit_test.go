//go:build !integration || nodemo

package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	ranAsProgram()
	os.Exit(m.Run())
}
