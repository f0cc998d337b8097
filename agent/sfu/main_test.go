//go:build integration

package sfu_test

import (
	"os"
	"testing"

	"touchline/agent/sfu/sfutest"
)

func TestMain(m *testing.M) { os.Exit(sfutest.Main(m)) }
