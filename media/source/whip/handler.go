package whip

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"touchline/media/signaling"
)

// Handler answers /whip/ROOM and /whip/ROOM/SESSION. Addresses of requests are
// taken from RemoteAddr: a proxy in front has to set it.
func (s *Server) Handler() http.Handler { return s.endpoint }

func (s *Server) newEndpoint() *signaling.Endpoint {
	return signaling.NewEndpoint(signaling.EndpointOptions{
		Name: "whip", Client: "sender",
		Authorize: func(_ *http.Request, token, room string) (any, error) { return s.authorize(token, room) },
		Forbidden: "expected a token for this room that allows publishing",
		Accept:    s.accept,
		Find: func(room, id string) (signaling.Resource, bool) {
			x := s.find(room, id)
			return x, x != nil
		},
		ICEServers: s.opts.ICEServers, Bounds: s.opts.Bounds, Now: s.opts.Now, Log: s.opts.Log,
	})
}

// accept makes a session of an offer.
func (s *Server) accept(ctx context.Context, room string, sender any, text string, from netip.Addr) (signaling.Resource, error) {
	who, ok := sender.(Sender)
	if !ok {
		return nil, errors.New("expected a sender")
	}
	o, err := readOffer(text)
	if err != nil {
		return nil, err
	}
	if !s.reserve() {
		return nil, fmt.Errorf("%w: too many senders", signaling.ErrBusy)
	}
	x, err := s.newSession(ctx, o, room, who, from)
	if err != nil {
		s.release(nil)
		return nil, err
	}
	if err := s.place(x); err != nil {
		x.end("no place for it")
		_ = x.peer.Close()
		s.release(nil)
		x.log.Warn().Err(err).Msg("no place for a WHIP session")
		return nil, fmt.Errorf("%w: the room cannot take a picture", signaling.ErrBusy)
	}
	go x.run() // the server waits for it in Run
	x.log.Info().Stringer("address", from).Msg("WHIP session begins")
	return x, nil
}
