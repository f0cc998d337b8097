package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"touchline/inference/remote"
)

type modelsCmd struct {
	Addresses []string `arg:"" optional:"" help:"HOST:PORT or http://HOST:PORT/v1 to look at; the usual local ports without."`
}

// discoverTime bounds the search.
const discoverTime = 5 * time.Second

// Run lists the model servers it finds. It sends no picture anywhere.
func (m *modelsCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, discoverTime)
	defer cancel()
	found := remote.Discover(ctx, m.Addresses...)
	if len(found) == 0 {
		where := strings.Join(m.Addresses, ", ")
		if where == "" {
			where = strings.Join(remote.LocalAddresses(), ", ")
		}
		return fmt.Errorf("expected an OpenAI-compatible model server at one of %s, found none: start one, or give its address", where)
	}
	for _, f := range found {
		fmt.Printf("%s  %s\n", f.URL, f.Kind)
		for _, name := range f.Models {
			fmt.Printf("    TOUCHLINE_INFERENCE_ENGINE=remote TOUCHLINE_INFERENCE_REMOTE_URL=%s TOUCHLINE_INFERENCE_REMOTE_MODEL=%s\n", f.URL, name)
		}
	}
	return nil
}
