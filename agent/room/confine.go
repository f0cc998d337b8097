package room

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

// confine keeps the media sockets of a connection on 127.0.0.1. The client
// library opens one socket for each address of each interface and has no
// setting for it, so confine changes pion's settings through an unexported
// field. They are read when candidates are gathered: call it in a callback of
// the join, after the peer connections are made and before the first offer.
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
	if api := unexported[*webrtc.API](pc, "api"); api != nil {
		return unexported[*webrtc.SettingEngine](api, "settingEngine")
	}
	return nil
}

// engineOf returns the unexported engine of a room; nil if a later version of the library has no such field.
func engineOf(room *lksdk.Room) *lksdk.RTCEngine { return unexported[*lksdk.RTCEngine](room, "engine") }

// unexported returns an unexported field of the struct that p points to; zero if it has no such field of type T.
func unexported[T any](p any, name string) (zero T) {
	field := reflect.ValueOf(p).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		return zero
	}
	return *(*T)(unsafe.Pointer(field.UnsafeAddr())) //nolint:gosec // of the type just checked
}

// confineRoom confines both peer connections of a room that is joining.
func (ses *session) confineRoom(room *lksdk.Room) {
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
func (ses *session) isConfined() bool {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.confined[0] != nil && ses.confined == [2]*webrtc.PeerConnection{
		ses.room.LocalParticipant.GetSubscriberPeerConnection(), ses.room.LocalParticipant.GetPublisherPeerConnection(),
	}
}
