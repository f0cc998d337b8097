package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/webrtc/v4"
	"golang.org/x/sync/errgroup"

	"touchline/agent/room/conn"
	"touchline/internal/e2e/stage"
	"touchline/internal/wav"
)

// hostility describes hostile clients, which flood each interface by a seeded script. Their traffic stays on this machine.
type hostility struct {
	Clients int    `json:"clients"`
	Seed    uint64 `json:"seed"`
	// Console is the address of the page and the API. Links are the tokens of a link for each room, that allow watching, and Steering
	// those that allow all. Without them all clients are participants.
	Console  string            `json:"console"`
	Links    map[string]string `json:"links"`
	Steering map[string]string `json:"steering"`
	// Kind is the kind of flood, of apart; all others are all kinds together.
	Kind string `json:"kind"`
	// Length of the flood; 0 is until the process is stopped.
	Length time.Duration `json:"length"`
}

// playHostile floods the rooms, and then writes how many requests had which answer.
func playHostile(ctx context.Context, at location, write func(any) error) error {
	if err := write(at); err != nil {
		return fmt.Errorf("write the location: %w", err)
	}
	flood := ctx
	if at.Hostile.Length > 0 {
		var cancel context.CancelFunc
		flood, cancel = context.WithTimeout(ctx, at.Hostile.Length)
		defer cancel()
	}
	counts := &answers{n: map[string]int{}}
	var all sync.WaitGroup
	for i := range at.Hostile.Clients {
		c := &client{
			answers: counts, location: at, number: i, room: at.Rooms[i%len(at.Rooms)],
			rand: rand.New(rand.NewPCG(at.Hostile.Seed, uint64(i))),
		}
		kinds := c.kinds()
		all.Go(func() {
			for flood.Err() == nil {
				if err := kinds[i%len(kinds)](flood); err != nil {
					c.count("client's error", fmt.Sprintf("%.60s", err))
					_ = stage.Wait(flood, time.Second)
				}
			}
		})
	}
	all.Wait()
	if err := write(counts.n); err != nil {
		return fmt.Errorf("write the answers: %w", err)
	}
	<-ctx.Done()
	return nil
}

// answers counts answers.
type answers struct {
	mu sync.Mutex
	n  map[string]int
}

func (a *answers) count(what, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n[what+" "+answer]++
}

// client is one hostile client.
type client struct {
	*answers
	location

	number int
	room   string
	rand   *rand.Rand
	offers []string
	held   []io.Closer // streams that are never read
}

// apart returns the kinds of flood that are also measured one after the other.
func apart() []string { return []string{"readers", "offers", "sockets", "thumbnails"} }

// kinds returns what the clients do, one of them each.
func (c *client) kinds() []func(context.Context) error {
	if c.Hostile.Console == "" {
		return []func(context.Context) error{c.participate}
	}
	offer := c.offer("whep", "player")
	one := map[string]func(context.Context) error{"readers": c.hold, "offers": offer, "sockets": c.speak, "thumbnails": c.thumbnail}
	if alone := one[c.Hostile.Kind]; alone != nil {
		return []func(context.Context) error{alone}
	}
	return []func(context.Context) error{c.participate, c.readWithLink, c.steerWithLink, offer, c.offer("whip", "sender")}
}

// participate joins the room, floods it with sound, and sends requests to the bot.
func (c *client) participate(ctx context.Context) error {
	s, err := stage.New(ctx, stage.Options{NoBot: true, NoCamera: true, At: c.URL, Keys: c.keys(), Room: c.room})
	if err != nil {
		return err
	}
	defer s.Close()
	p, leave, err := s.AddPerson(ctx, fmt.Sprintf("hostile-%d", c.number))
	if err != nil {
		return err
	}
	defer leave()
	stop := s.Run(func(ctx context.Context) error {
		_ = p.Flood(ctx, make([]byte, 60)) // until it leaves
		return nil
	})
	defer stop()
	methods := []string{"history", "status", "set_instruction", "say", "rules", "add_rule", "talk", "nothing"}
	var calls errgroup.Group
	calls.SetLimit(requestsAtOnce)
	defer calls.Wait() //nolint:errcheck // they return none
	for end := time.Now().Add(20 * time.Second); ctx.Err() == nil && time.Now().Before(end); {
		bot := ""
		for _, other := range p.Room.GetRemoteParticipants() {
			if other.Kind() == lksdk.ParticipantAgent {
				bot = other.Identity()
			}
		}
		if bot == "" {
			return stage.Wait(ctx, time.Second)
		}
		junk := strings.Repeat("x", c.rand.IntN(14_000))
		if c.rand.IntN(2) == 0 {
			err = p.Room.LocalParticipant.PublishDataPacket(lksdk.UserData([]byte(`{"id":"1","method":"status","params":{"x":"`+junk+`"}}`)),
				lksdk.WithDataPublishTopic("touchline.control"), lksdk.WithDataPublishReliable(true))
			c.count("participant's message", errorText(err))
			_ = stage.Wait(ctx, 5*time.Millisecond) // the library would keep any number in memory
			continue
		}
		call := lksdk.PerformRpcParams{
			DestinationIdentity: bot, Method: "touchline." + methods[c.rand.IntN(len(methods))], Payload: `{"instruction":"` + junk + `"}`,
			ResponseTimeout: new(time.Second),
		}
		if c.rand.IntN(2) == 0 {
			call.Payload = "{}"
		}
		calls.Go(func() error {
			_, err := p.Room.LocalParticipant.PerformRpc(call)
			c.count("participant's request", errorText(err))
			return nil
		})
	}
	return nil
}

// requestsAtOnce bounds a participant's requests without an answer.
const requestsAtOnce = 16

func errorText(err error) string {
	if err == nil {
		return "taken"
	}
	return "refused"
}

// readWithLink uses the API as the holder of a link.
func (c *client) readWithLink(ctx context.Context) error {
	in, link := "/api/rooms/"+c.room, c.Hostile.Links[c.room]
	switch c.rand.IntN(7) {
	case 0:
		return c.thumbnail(ctx)
	case 1:
		return c.ask(ctx, "list", "GET", in+[]string{"/status", "/history", "/rules", "/settings", "/alerts"}[c.rand.IntN(5)], link, "")
	case 2:
		return c.ask(ctx, "body of 1 MB", "POST", in+"/instruction", link, `{"instruction":"`+strings.Repeat("y", 1<<20)+`"}`)
	case 3:
		return c.hold(ctx)
	case 4:
		return c.ask(ctx, "wrong token", "GET", in+"/status", strconv.FormatUint(c.rand.Uint64(), 36), "")
	case 5:
		return c.speak(ctx)
	default:
		form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" + strings.Repeat("z", 1<<18) + "\r\n--b--\r\n"
		return c.ask(ctx, "upload", "POST", "/v1/audio/transcriptions", link, form)
	}
}

// steerWithLink uses the API as the holder of a link with all rights. It changes nothing on purpose: that is allowed.
func (c *client) steerWithLink(ctx context.Context) error {
	in, link, junk := "/api/rooms/"+c.room, c.Hostile.Steering[c.room], strings.Repeat("z", c.rand.IntN(20_000))
	switch c.rand.IntN(8) {
	case 0:
		return c.ask(ctx, "settings", "POST", in+"/settings", link, `{"`+junk+`":1}`)
	case 1:
		return c.ask(ctx, "rule", "POST", in+"/rules", link, `{"when":"`+junk+`"}`)
	case 2:
		return c.ask(ctx, "source", "POST", in+"/sources", link, `{"url":"rtsp://127.0.0.1:9/`+junk+`"}`)
	case 3:
		return c.ask(ctx, "link", "POST", in+"/links", link, `{"rights":["watch"],"for":"1h"}`)
	case 4:
		return c.ask(ctx, "speech", "POST", "/v1/audio/speech", link, `{"input":"They attack on the left.","response_format":"wav"}`)
	case 5:
		return c.ask(ctx, "login", "POST", "/api/login", "", `{"token":"`+strconv.FormatUint(c.rand.Uint64(), 36)+`"}`)
	case 6:
		return c.ask(ctx, "signalling", "GET", "/rtc?access_token="+strconv.FormatUint(c.rand.Uint64(), 36), link, "")
	default:
		noise := make([]float32, 16_000)
		for i := range noise {
			noise[i] = c.rand.Float32() - 0.5
		}
		form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" +
			string(wav.Encode(noise, len(noise))) + "\r\n--b--\r\n"
		return c.ask(ctx, "recording", "POST", "/v1/audio/transcriptions", link, form)
	}
}

// thumbnail asks for the newest picture in one of many widths.
func (c *client) thumbnail(ctx context.Context) error {
	path := fmt.Sprintf("/api/rooms/%s/frame?w=%d", c.room, 16+c.rand.IntN(430))
	return c.ask(ctx, "thumbnail", "GET", path, c.Hostile.Links[c.room], "")
}

// ask sends a request and drops the answer.
func (c *client) ask(ctx context.Context, what, method, path, token, body string) error {
	res, err := c.request(ctx, method, path, token, body)
	if err != nil {
		c.count(what, "broken off")
		return ctx.Err()
	}
	c.count(what, res.Status)
	_, _ = io.Copy(io.Discard, res.Body) // its answer does not matter
	return res.Body.Close()
}

func (c *client) request(ctx context.Context, method, path, token, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Hostile.Console+path, bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	switch {
	case strings.HasPrefix(path, "/v1/"):
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	case strings.HasPrefix(path, "/whep"), strings.HasPrefix(path, "/whip"):
		req.Header.Set("Content-Type", "application/sdp")
	default:
		req.Header.Set("Content-Type", "application/json")
	}
	return http.DefaultClient.Do(req)
}

// maxHeld bounds the streams that a client keeps open: 20 clients have 840.
const maxHeld = 42

// hold opens a stream and never reads it.
func (c *client) hold(ctx context.Context) error {
	path := "/api/rooms/" + c.room + []string{"/events", "/stream", "/mjpeg", "/audio-stream"}[c.rand.IntN(4)]
	res, err := c.request(ctx, "GET", path, c.Hostile.Links[c.room], "") //nolint:bodyclose // keep closes it
	if err != nil {
		c.count("stream", "broken off")
		return ctx.Err()
	}
	c.count("stream", res.Status)
	c.keep(res.Body)
	return nil
}

func (c *client) keep(open io.Closer) {
	if c.held = append(c.held, open); len(c.held) > maxHeld {
		_ = c.held[0].Close() // it was never read
		c.held = c.held[1:]
	}
}

// speak sends a long message to a live transcription socket.
func (c *client) speak(ctx context.Context) error {
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+c.Hostile.Console+"/v1/realtime", http.Header{ //nolint:bodyclose // empty
		"Authorization": {"Bearer " + c.Hostile.Links[c.room]},
	})
	if res != nil {
		c.count("socket", res.Status)
	}
	if err != nil {
		return ctx.Err()
	}
	length := 1 << (10 + c.rand.IntN(14)) // up to 8 MiB
	_ = ws.SetWriteDeadline(time.Now().Add(5 * time.Second))
	err = ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"input_audio_buffer.append","audio":"`+strings.Repeat("f", length)+`"}`))
	c.count("socket's message", errorText(err))
	c.keep(ws)
	return nil
}

// offer returns a flood of offers to WHEP or WHIP, real ones and long ones, none of which connects.
func (c *client) offer(protocol, who string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if c.offers == nil {
			sdp, err := realOffer(protocol == "whep")
			if err != nil {
				return err
			}
			c.offers = []string{sdp, sdp + strings.Repeat("a=x\r\n", 12_000), strings.Repeat("v", 1<<20)}
		}
		token := c.Hostile.Links[c.room]
		if protocol == "whip" {
			var err error
			if token, err = conn.CameraToken(c.keys(), conn.Person{Room: c.room, Identity: fmt.Sprintf("hostile-%d", c.number)}); err != nil {
				return err
			}
		}
		return c.ask(ctx, who+"'s offer", "POST", "/"+protocol+"/"+c.room, token, c.offers[c.rand.IntN(len(c.offers))])
	}
}

// realOffer returns the offer of a player or a sender.
func realOffer(receives bool) (string, error) {
	pc, err := webrtc.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return "", err
	}
	defer pc.Close()
	direction := webrtc.RTPTransceiverDirectionSendonly
	if receives {
		direction = webrtc.RTPTransceiverDirectionRecvonly
	}
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		if _, err := pc.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: direction}); err != nil {
			return "", err
		}
	}
	sdp, err := pc.CreateOffer(nil)
	return sdp.SDP, err
}
