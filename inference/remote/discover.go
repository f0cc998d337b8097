package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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
	client := newClient()
	defer client.CloseIdleConnections()
	found, missing := make([]Found, len(addresses)), make([]error, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
			defer cancel()
			found[i], missing[i] = listServer(ctx, client, address)
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
func listServer(ctx context.Context, client *http.Client, address string) (Found, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := parseURL(address)
	if err != nil {
		return Found{}, err
	}
	f := Found{URL: u.String()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+"/models", nil)
	if err != nil {
		return f, err
	}
	res, err := client.Do(req)
	if err != nil {
		return f, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return f, fmt.Errorf("expected a list of models, got %s", res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return f, err
	}
	var list struct {
		Data []struct {
			ID      string `json:"id"`
			OwnedBy string `json:"owned_by"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return f, err
	}
	if list.Data == nil {
		return f, errors.New("expected a list of models")
	}
	owner := ""
	for _, m := range list.Data {
		if m.ID != "" {
			f.Models = append(f.Models, m.ID)
			owner = cmp.Or(owner, m.OwnedBy)
		}
	}
	slices.Sort(f.Models)
	f.Kind = kind(owner, u.Port())
	return f, nil
}

// parseURL parses the address of a server and adds /v1 if it has no path.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return nil, errors.New("expected an address such as http://127.0.0.1:8000/v1, without name and password")
	}
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = "/v1"
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// kind recognises a server by the owner of its models, else by its port.
func kind(owner, port string) string {
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
	switch port {
	case "11434":
		return "Ollama"
	case "1234":
		return "LM Studio"
	}
	return "model server"
}
