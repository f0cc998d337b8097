package whip

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"touchline/media/signaling"
)

// Handler serves /whip/ROOM and /whip/ROOM/SESSION; see signaling.Endpoint.
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

// accept starts a session for an offer.
func (s *Server) accept(ctx context.Context, room string, sender any, text string, from netip.Addr) (signaling.Resource, error) {
	who, ok := sender.(Sender)
	if !ok {
		return nil, errors.New("the request is not authorised")
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
		x.end("its room accepts no picture")
		_ = x.peer.Close()
		s.release(nil)
		x.log.Warn().Err(err).Msg("WHIP session refused")
		return nil, fmt.Errorf("%w: the room accepts no picture now", signaling.ErrBusy)
	}
	go x.run() // the server waits for it in Run
	x.log.Info().Stringer("address", from).Msg("WHIP session started")
	return x, nil
}
