package worker_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/worker"
	"touchline/media"
)

func TestParseMetadata(t *testing.T) {
	yes := true
	const known = "the known ones are engine, instruction, language, profile, speech, track"
	tests := []struct {
		name, text string
		want       worker.Metadata
		err        string
	}{
		{name: "nothing"},
		{name: "white space", text: " \n"},
		{name: "no wish", text: "{}"},
		{
			name: "everything",
			text: `{"profile":"sports","instruction":"Count the goals.","track":{"identity":"cam-2","source":"camera"},
				"speech":true,"language":"pt-BR","engine":"remote"}`,
			want: worker.Metadata{
				Profile: "sports", Instruction: "Count the goals.", Track: media.WatchConfig{Identity: "cam-2", Source: "camera"},
				Speech: &yes, Language: "pt-BR", Engine: "remote",
			},
		},
		{name: "null is no wish", text: `{"profile":null,"speech":null,"track":null}`},
		{name: "unknown", text: `{"profil":"sports"}`, err: `unknown key "profil"; ` + known},
		{name: "other case", text: `{"Profile":"sports"}`, err: `unknown key "Profile"; ` + known},
		{name: "unknown inside", text: `{"track":{"id":"x"}}`, err: `track: unknown key "id"; the known ones are identity, source`},
		{name: "wrong kind", text: `{"speech":"yes"}`, err: "speech: expected true or false, got string"},
		{name: "wrong source", text: `{"track":{"source":"phone"}}`, err: `track.source: expected "camera" or "screen_share", got "phone"`},
		{name: "wrong language", text: `{"language":"e"}`, err: `language: expected a tag such as en or pt-BR, got "e"`},
		{name: "two", text: `{} {}`, err: "expected one JSON object"},
		{name: "a list", text: `[]`, err: "expected a JSON object, got array"},
		{name: "null", text: `null`, err: "expected a JSON object, got null"},
		{name: "text", text: `sports`, err: "expected a JSON object"},
		{name: "not UTF-8", text: "{\"profile\":\"\xff\"}", err: "expected UTF-8"},
		{name: "long order", text: `{"instruction":"` + strings.Repeat("a", 2001) + `"}`, err: "instruction: expected at most 2000 characters, got 2001"},
		{name: "huge", text: strings.Repeat(" ", 1<<16) + "{}", err: "expected at most 65536 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := worker.ParseMetadata(tt.text)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func FuzzParseMetadata(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"profile":"a"}`, `{"track":{"identity":"a","source":"camera"}}`, `{"track":{"x":1}}`, `{"speech":true}`, `null`, `[`,
		`{"language":"en-GB"}`, `{"a":{"a":{"a":[1,2,{"b":null}]}}}`, "{\"profile\":\"\\ud800\"}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := worker.ParseMetadata(text)
		if err != nil {
			require.Zero(t, m)
			require.LessOrEqual(t, len(err.Error()), 2*len(text)+1000)
		}
	})
}

func TestIdentity(t *testing.T) {
	require.Equal(t, "agent", worker.Identity("", ""))
	require.Equal(t, "agent-tl", worker.Identity("tl", ""))
	require.Equal(t, "agent-tl:vera", worker.Identity("tl", "vera"))
	long := worker.Identity("tl", strings.Repeat("é", 200))
	require.LessOrEqual(t, len(long), 100)
	require.NotEqual(t, long, worker.Identity("tl", strings.Repeat("é", 201)))
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	good := worker.Options{URL: "ws://127.0.0.1:1", APIKey: "k", APISecret: "s", Slots: 1, Runner: instant{}}
	tests := []struct {
		name   string
		change func(*worker.Options)
		err    string
	}{
		{"url", func(o *worker.Options) { o.URL = "" }, "LIVEKIT_URL"},
		{"scheme", func(o *worker.Options) { o.URL = "ftp://x" }, "ws://"},
		{"password", func(o *worker.Options) { o.URL = "ws://a:hidden@x" }, "LIVEKIT_URL"},
		{"secret", func(o *worker.Options) { o.APISecret = "" }, "LIVEKIT_API_SECRET"},
		{"runner", func(o *worker.Options) { o.Runner = nil }, "Runner"},
		{"slots", func(o *worker.Options) { o.Slots = 0 }, "slot"},
		{"deployment", func(o *worker.Options) { o.Deployment = "a_b" }, "deployment"},
		{"deployment's length", func(o *worker.Options) { o.Deployment = strings.Repeat("a", 65) }, "64 bytes"},
		{"name", func(o *worker.Options) { o.AgentName = strings.Repeat("a", 129) }, "128 bytes"},
		{"drain", func(o *worker.Options) { o.DrainTimeout = -1 }, "drain timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := good
			tt.change(&o)
			_, err := worker.New(o)
			require.ErrorContains(t, err, tt.err)
			require.NotContains(t, err.Error(), "hidden")
		})
	}
	_, err := worker.New(good)
	require.NoError(t, err)
	for _, s := range []string{"room", "publisher", "participant"} {
		jt, err := worker.ParseJobType(s)
		require.NoError(t, err)
		require.Equal(t, "JT_"+strings.ToUpper(s), jt.String())
	}
	for _, s := range []string{"rooms", "Room", ""} {
		_, err = worker.ParseJobType(s)
		require.ErrorContains(t, err, "room, publisher or participant")
	}
}

func TestMeter(t *testing.T) {
	var m worker.Meter
	now := time.Unix(1000, 0)
	require.Zero(t, m.Rate(now, 0))
	// Half a core for 10 s, asked every half second.
	var used time.Duration
	step := func(spent time.Duration) float64 {
		now, used = now.Add(500*time.Millisecond), used+spent
		return m.Rate(now, used)
	}
	require.InDelta(t, 0.2, step(500*time.Millisecond), 1e-9, "half a second at full load is no full machine")
	for range 10 {
		step(250 * time.Millisecond)
	}
	for range 20 {
		require.InDelta(t, 0.5, step(250*time.Millisecond), 1e-9)
	}
	burst := step(500 * time.Millisecond)
	require.Less(t, burst, 0.6, "half a second at full load is no full machine")
	for range 10 {
		burst = step(500 * time.Millisecond)
	}
	require.InDelta(t, 1, burst, 1e-9, "five seconds are")
	require.Zero(t, m.Rate(now.Add(time.Second), 0), "a counter that was reset")
}

func TestCPU(t *testing.T) {
	now := time.Unix(1000, 0)
	t.Run("machine", func(t *testing.T) {
		files := fstest.MapFS{"proc/stat": {Data: []byte("cpu  100 0 100 5000 50 0 0 0 0 0\ncpu0 1\n")}}
		c, err := worker.NewCPU(files, 4)
		require.NoError(t, err)
		require.Zero(t, c.Load(now))
		// 4 s later 4 s of CPU were used, of 16.
		files["proc/stat"] = &fstest.MapFile{Data: []byte("cpu  300 0 300 5400 50 0 0 0 0 0\n")}
		require.InDelta(t, 0.25, c.Load(now.Add(4*time.Second)), 1e-9)
		require.InDelta(t, 0.25, c.Load(now.Add(4100*time.Millisecond)), 1e-9, "too soon for another answer")
	})
	t.Run("container", func(t *testing.T) {
		files := fstest.MapFS{
			"sys/fs/cgroup/cpu.max":  {Data: []byte("50000 100000\n")},
			"sys/fs/cgroup/cpu.stat": {Data: []byte("usage_usec 1000000\nuser_usec 1\n")},
		}
		c, err := worker.NewCPU(files, 64)
		require.NoError(t, err)
		c.Load(now)
		files["sys/fs/cgroup/cpu.stat"] = &fstest.MapFile{Data: []byte("usage_usec 1250000\n")}
		require.InDelta(t, 0.1, c.Load(now.Add(5*time.Second)), 1e-9, "a quarter of a second, of half a core for 5 s")
	})
	t.Run("older container", func(t *testing.T) {
		files := fstest.MapFS{
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  {Data: []byte("200000\n")},
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": {Data: []byte("100000\n")},
			"sys/fs/cgroup/cpu,cpuacct/cpuacct.usage":     {Data: []byte("0\n")},
		}
		c, err := worker.NewCPU(files, 64)
		require.NoError(t, err)
		c.Load(now)
		files["sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"] = &fstest.MapFile{Data: []byte("2000000000\n")}
		require.InDelta(t, 0.25, c.Load(now.Add(4*time.Second)), 1e-9)
	})
	t.Run("nothing to read", func(t *testing.T) {
		_, err := worker.NewCPU(fstest.MapFS{}, 4)
		require.ErrorContains(t, err, "measure the CPU")
	})
}
