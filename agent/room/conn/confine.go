package conn

import (
	"errors"
	"net"
	"reflect"
	"unsafe"

	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"
)

var errUnconfined = errors.New("the connection's media sockets are not on loopback")

// confine keeps the media sockets of a connection on 127.0.0.1. The client library opens one socket for each address of each
// interface and has no setting for it, so confine changes pion's settings through an unexported field. Pion reads them when it
// gathers candidates: call confine in a callback of the join, after the peer connections are made and before the first offer.
//
// It returns an error if a later version of the library has no such field.
func confine(pc *webrtc.PeerConnection) error {
	settings := settingsOf(pc)
	if settings == nil {
		return errUnconfined
	}
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetIPFilter(func(ip net.IP) bool { return ip.IsLoopback() && ip.To4() != nil })
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	settings.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	return nil
}

// settingsOf returns pc.api.settingEngine; nil without such a field.
func settingsOf(pc *webrtc.PeerConnection) *webrtc.SettingEngine {
	if pc == nil {
		return nil
	}
	if api := Unexported[*webrtc.API](pc, "api"); api != nil {
		return Unexported[*webrtc.SettingEngine](api, "settingEngine")
	}
	return nil
}

// EngineOf returns the unexported engine of a room; nil if a later version of the library has no such field.
func EngineOf(room *lksdk.Room) *lksdk.RTCEngine { return Unexported[*lksdk.RTCEngine](room, "engine") }

// Unexported returns an unexported field of the struct that p points to; zero if it has no such field of type T.
func Unexported[T any](p any, name string) (zero T) {
	if f := field[T](p, name); f != nil {
		return *f
	}
	return zero
}

// field returns the address of an unexported field as Unexported reads it; nil without.
func field[T any](p any, name string) *T {
	f := reflect.ValueOf(p).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())) //nolint:gosec // of the type just checked
}

// confineRoom confines both peer connections of a room that is joining.
func (ses *Session) confineRoom(room *lksdk.Room) {
	subscriber := room.LocalParticipant.GetSubscriberPeerConnection()
	publisher := room.LocalParticipant.GetPublisherPeerConnection()
	if subscriber == nil || publisher == nil {
		return
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.confined == [2]*webrtc.PeerConnection{subscriber, publisher} {
		return
	}
	if confine(subscriber) == nil && confine(publisher) == nil {
		ses.confined = [2]*webrtc.PeerConnection{subscriber, publisher}
	}
}

// isConfined reports whether the present peer connections were confined in time.
func (ses *Session) isConfined() bool {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.confined[0] != nil && ses.confined == [2]*webrtc.PeerConnection{
		ses.Room.LocalParticipant.GetSubscriberPeerConnection(), ses.Room.LocalParticipant.GetPublisherPeerConnection(),
	}
}
