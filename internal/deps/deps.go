// Package deps exists only to warm the module cache.
package deps

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/caarlos0/env/v11"
	_ "github.com/chromedp/chromedp"
	_ "github.com/go-logr/zerologr"
	_ "github.com/goccy/go-yaml"
	_ "github.com/livekit/livekit-server/pkg/config"
	_ "github.com/livekit/livekit-server/pkg/routing"
	_ "github.com/livekit/livekit-server/pkg/service"
	_ "github.com/livekit/livekit-server/pkg/telemetry/prometheus"
	_ "github.com/livekit/protocol/auth"
	_ "github.com/livekit/protocol/livekit"
	_ "github.com/livekit/server-sdk-go/v2"
	_ "github.com/openai/openai-go/v3"
	_ "github.com/pion/mediadevices/pkg/driver"
	_ "github.com/pion/rtp/codecs"
	_ "github.com/pion/webrtc/v4"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rs/zerolog"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "gopkg.in/hraban/opus.v2"
)
