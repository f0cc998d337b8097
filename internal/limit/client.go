package limit

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Client is the client of a request, for bounds of its token and its network.
type Client struct {
	// Token is a name of its token, such as a hash; "" without one.
	Token string
	// Link is the shared link that the token comes from; "" for none.
	Link string
	// From is its address; the zero value for unknown.
	From netip.Addr
	// Operator marks a client with all rights, which has no bounds of its own.
	Operator bool
}

// Holder returns the name that bounds of a token count: that of its link, as a link's holder can get any number of tokens.
func (c Client) Holder() string { return cmp.Or(c.Link, c.Token) }

// clientKey is the context key of a Client.
type clientKey struct{}

// WithClient returns a context with the client of a request.
func WithClient(ctx context.Context, c Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// ClientOf returns the client of a request; the zero value, which has no bounds of its own, for an unknown one.
func ClientOf(ctx context.Context) Client {
	c, _ := ctx.Value(clientKey{}).(Client)
	return c
}

// networkFactor is the number of tokens whose rate a network has, as many people may share it.
const networkFactor = 4

// Rates bounds the rate of what clients do: that of each token, and that of each network, which is four times as high. The operator has no
// bound. A nil Rates allows everything.
type Rates struct {
	tokens   *Limiter[string]
	networks *Limiter[netip.Addr]
	refused
}

// NewRates returns Rates of a kind, with the rate and the burst of a token.
func NewRates(kind string, perSecond float64, burst int) *Rates {
	return &Rates{
		tokens:   New[string](perSecond, burst),
		networks: New[netip.Addr](networkFactor*perSecond, networkFactor*burst),
		refused:  newRefused(kind, ofToken, ofNetwork),
	}
}

// Allow counts an action of a client, or returns false and the time until the next one.
func (r *Rates) Allow(c Client, now time.Time) (wait time.Duration, ok bool) {
	if r == nil || c.Operator {
		return 0, true
	}
	if holder := c.Holder(); holder != "" {
		if wait, ok := r.tokens.Allow(holder, now); !ok {
			r.WithLabelValues(ofToken).Inc()
			return wait, false
		}
	}
	if c.From.IsValid() {
		if wait, ok := r.networks.Allow(Network(c.From), now); !ok {
			r.WithLabelValues(ofNetwork).Inc()
			return wait, false
		}
	}
	return 0, true
}

// refused counts refused clients by the reason.
type refused struct{ *prometheus.CounterVec }

// The reasons.
const (
	ofAll     = "process"
	ofRoom    = "room"
	ofToken   = "token"
	ofNetwork = "address"
	pushedOut = "pushed_out"
)

func newRefused(kind string, reasons ...string) refused {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "touchline_limit_refused_total",
		Help:        "Clients beyond a limit, by what they wanted and whose limit it was; pushed_out: disconnected for the operator.",
		ConstLabels: prometheus.Labels{"kind": kind},
	}, []string{"reason"})
	for _, reason := range reasons {
		v.WithLabelValues(reason)
	}
	return refused{v}
}
