package control

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"google.golang.org/protobuf/proto"
)

// maxPacket bounds a data packet, in bytes. Clients may close the connection at a message above 64 KiB.
const maxPacket = 60 << 10

// rawPacket sends any data packet. The library's text streams wait about 200 ms for the channel to drain before each step.
type rawPacket struct{ *livekit.DataPacket }

// ToProto implements lksdk.DataPacket.
func (p rawPacket) ToProto() *livekit.DataPacket { return p.DataPacket }

// post sends a data packet, unless a client library would break on it.
func post(room *lksdk.Room, p *livekit.DataPacket) error {
	if err := checkPacket(p); err != nil {
		return fmt.Errorf("send a data packet: %w", err)
	}
	return room.LocalParticipant.PublishDataPacket(rawPacket{p}, lksdk.WithDataPublishReliable(true),
		lksdk.WithDataPublishDestination(p.GetDestinationIdentities()))
}

// checkPacket returns an error for a packet that a client library of LiveKit cannot take. The Rust library, and with it those of Python,
// Node, Unity and C++, aborts the client at a transcription without a track id. Others raise errors in their readers of streams.
func checkPacket(p *livekit.DataPacket) error {
	switch v := p.GetValue().(type) {
	case *livekit.DataPacket_Transcription:
		if id := v.Transcription.GetTrackId(); !strings.HasPrefix(id, "TR_") {
			return fmt.Errorf("transcription: the track id must begin with TR_, is %q", id)
		}
		if v.Transcription.GetTranscribedParticipantIdentity() == "" {
			return errors.New("transcription: the identity is empty")
		}
	case *livekit.DataPacket_StreamHeader:
		if h := v.StreamHeader; h.GetStreamId() == "" || h.GetTopic() == "" || h.GetContentHeader() == nil {
			return errors.New("stream header: the id, the topic or the kind is missing")
		}
	case *livekit.DataPacket_StreamChunk:
		if c := v.StreamChunk; c.GetStreamId() == "" || !utf8.Valid(c.GetContent()) {
			return errors.New("stream chunk: the id is missing or the text is not UTF-8")
		}
	case *livekit.DataPacket_StreamTrailer:
		if v.StreamTrailer.GetStreamId() == "" {
			return errors.New("stream trailer: the id is missing")
		}
	case *livekit.DataPacket_User:
	default:
		return fmt.Errorf("unexpected packet of type %T", v)
	}
	if n := proto.Size(p); n > maxPacket {
		return fmt.Errorf("expected at most %d bytes, got %d", maxPacket, n)
	}
	return nil
}

// userPacket returns a packet on a data topic to some participants, or to all.
func userPacket(topic string, payload []byte, to ...string) *livekit.DataPacket {
	packet := lksdk.UserData(payload)
	packet.Topic = topic
	p := packet.ToProto()
	p.DestinationIdentities = to
	return p
}

// captionAttributes returns the attributes of a stream on topicTranscription. Empty ones are left out.
func captionAttributes(segment string, final bool, track, language string) map[string]string {
	out := map[string]string{attrSegment: segment, attrFinal: strconv.FormatBool(final)}
	if track != "" {
		out[attrTrack] = track
	}
	if language != "" {
		out[AttributeLanguage] = language
	}
	return out
}

func streamHeader(id, topic string, attributes map[string]string, now time.Time) *livekit.DataPacket {
	return &livekit.DataPacket{Value: &livekit.DataPacket_StreamHeader{StreamHeader: &livekit.DataStream_Header{
		StreamId: id, Timestamp: now.UnixMilli(), Topic: topic, MimeType: "text/plain", Attributes: attributes,
		ContentHeader: &livekit.DataStream_Header_TextHeader{TextHeader: &livekit.DataStream_TextHeader{
			OperationType: livekit.DataStream_CREATE,
		}},
	}}}
}

func streamChunk(id string, index uint64, text string) *livekit.DataPacket {
	return &livekit.DataPacket{Value: &livekit.DataPacket_StreamChunk{StreamChunk: &livekit.DataStream_Chunk{
		StreamId: id, ChunkIndex: index, Content: []byte(text),
	}}}
}

func streamTrailer(id string, attributes map[string]string) *livekit.DataPacket {
	return &livekit.DataPacket{Value: &livekit.DataPacket_StreamTrailer{StreamTrailer: &livekit.DataStream_Trailer{
		StreamId: id, Attributes: attributes,
	}}}
}
