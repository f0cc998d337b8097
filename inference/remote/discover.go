package remote

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Found is one model server on this machine.
type Found struct {
	// URL is a value for inference.remote.url.
	URL string
	// Kind is the server's program, if recognised: "vLLM", "Ollama", ...
	Kind string
	// Models that the server lists.
	Models []string
}

// discoverTimeout bounds the request to one address.
const discoverTimeout = 2 * time.Second

// LocalAddresses returns the default addresses of common model servers on this machine.
func LocalAddresses() []string {
	var out []string
	for _, port := range []int{
		8000,  // vLLM
		30000, // SGLang
		8080,  // llama-server
		11434, // Ollama
		1234,  // LM Studio
		1337,  // Jan
		5001,  // KoboldCpp
		9997,  // Xinference
	} {
		out = append(out, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return out
}

// Discover requests the list of models from each address (HOST:PORT or
// http://HOST:PORT/v1; none means LocalAddresses) and returns the servers with a
// list, in the order of the addresses. It sends no key and no picture.
func Discover(ctx context.Context, addresses ...string) []Found {
	if len(addresses) == 0 {
		addresses = LocalAddresses()
	}
	found, missing := make([]Found, len(addresses)), make([]error, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
			defer cancel()
			found[i], missing[i] = listServer(ctx, address)
		})
	}
	wg.Wait()
	var out []Found
	for i, f := range found {
		if missing[i] == nil {
			out = append(out, f)
		}
	}
	return out
}

// listServer requests the list of models from one address.
func listServer(ctx context.Context, address string) (Found, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	m, err := New(Config{URL: address}, 1, zerolog.Nop())
	if err != nil {
		return Found{}, err
	}
	defer m.Close()
	models, owner, err := m.list(ctx)
	if err == nil && models == nil {
		err = errNoList
	}
	slices.Sort(models)
	return Found{URL: m.server, Kind: kind(owner, m.server), Models: models}, err
}

// parseURL parses the address of a server. It adds /v1 if there is no path, and takes off the path of a request.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return nil, errors.New("expected an address such as http://127.0.0.1:8000/v1, without name and password")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	for _, request := range []string{"/chat/completions", "/audio/transcriptions"} {
		u.Path = strings.TrimSuffix(u.Path, request)
	}
	if u.Path == "" {
		u.Path = "/v1"
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// kind recognises a server by the owner of its models, else by the port of its address.
func kind(owner, address string) string {
	switch owner {
	case "vllm":
		return "vLLM"
	case "sglang":
		return "SGLang"
	case "llamacpp":
		return "llama-server"
	case "library":
		return "Ollama"
	case "organization_owner":
		return "LM Studio"
	}
	switch {
	case strings.Contains(address, ":11434/"):
		return "Ollama"
	case strings.Contains(address, ":1234/"):
		return "LM Studio"
	}
	return "model server"
}
