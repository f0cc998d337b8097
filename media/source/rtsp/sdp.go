package rtsp

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/sdp/v3"
	"github.com/rs/zerolog"

	"touchline/media/packet"
)

// section is a media section of an SDP.
type section sdp.MediaDescription

// readableSDP returns an SDP (RFC 8866) with what a picture needs and the library can read: the sections of picture and
// sound, with the formats and parameters that parse. One bad line must not cost the picture. feedback has the controls of all sections,
// without hosts, and whether they are offered with the profile RTP/AVPF (RFC 4585) alone.
func readableSDP(body []byte, log zerolog.Logger) (readable []byte, upright packet.Orientation, feedback map[string]bool) {
	drop := func(line string, err error) { log.Debug().Err(err).Str("line", line).Msg("SDP line dropped") }
	// The library needs these lines, and reads nothing in them.
	out := sdp.SessionDescription{
		Origin:      sdp.Origin{Username: "-", NetworkType: "IN", AddressType: "IP4", UnicastAddress: "127.0.0.1"},
		SessionName: "-", TimeDescriptions: []sdp.TimeDescription{{}},
	}
	var sections []*section
	var now *section
	for line := range strings.FieldsFuncSeq(string(body), func(r rune) bool { return r == '\r' || r == '\n' || r == 0 }) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			drop(line, nil)
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "m":
			now = readSection(value)
			sections = append(sections, now)
		case "a":
			name, rest, _ := strings.Cut(value, ":")
			a := sdp.Attribute{Key: strings.ToLower(strings.TrimSpace(name)), Value: strings.Join(strings.Fields(rest), " ")}
			switch {
			case a.Key == "key-mgmt" && !readableKeys(a):
				drop(line, nil)
			case a.Key == "extmap":
				upright = max(upright, packet.ReadOrientation(a.Value))
			case now != nil:
				now.Attributes = append(now.Attributes, a)
			case a.Key == "key-mgmt":
				out.Attributes = append(out.Attributes, a)
			case a.Key == "control":
				if _, err := base.ParseURL(a.Value); err == nil || a.Value == "*" {
					out.Attributes = append(out.Attributes, a)
				}
			}
		}
	}
	feedback = map[string]bool{}
	for _, s := range sections {
		control := s.control()
		alone, known := feedback[control]
		feedback[control] = s.MediaName.Protos[1] == "AVPF" && (alone || !known)
		if s.MediaName.Protos[1] == "AVPF" {
			s.MediaName.Protos[1] = "AVP"
		}
		if s.repair(drop) {
			out.MediaDescriptions = append(out.MediaDescriptions, (*sdp.MediaDescription)(s))
		}
	}
	readable, _ = out.Marshal() // never fails
	return readable, upright, feedback
}

// readSection reads the value of an m= line: kind, port, protocol and payload types.
func readSection(value string) *section {
	fields := strings.Fields(value)
	s := &section{MediaName: sdp.MediaName{Protos: []string{"RTP", "AVP"}}}
	if len(fields) > 0 {
		s.MediaName.Media = strings.ToLower(fields[0])
	}
	if len(fields) > 2 {
		switch protocol := strings.ToUpper(fields[2]); {
		case strings.Contains(protocol, "SAVP"):
			s.MediaName.Protos[1] = "SAVP"
		case strings.Contains(protocol, "AVPF"):
			s.MediaName.Protos[1] = "AVPF"
		}
	}
	if len(fields) > 3 {
		s.MediaName.Formats = fields[3:]
	}
	return s
}

// repair reduces a section to what is needed and can be read. It returns false if no format is left.
func (s *section) repair(drop func(line string, err error)) bool {
	if s.MediaName.Media != "video" && s.MediaName.Media != "audio" {
		return false
	}
	s.Attributes = slices.DeleteFunc(s.Attributes, func(a sdp.Attribute) bool {
		backChannel := a.Key == "sendonly" && s.MediaName.Media == "audio" // a camera shows no picture
		return !backChannel && !slices.Contains([]string{"control", "rtpmap", "fmtp", "key-mgmt"}, a.Key)
	})
	s.MediaName.Formats = slices.DeleteFunc(s.MediaName.Formats, func(t string) bool { return t == "" })
	s.repairMaps()
	s.MediaName.Formats = slices.DeleteFunc(s.MediaName.Formats, func(t string) bool {
		if s.MediaName.Media == "video" { // sound needs all its parameters
			s.dropParameters(t, drop)
		}
		err := s.readable(t)
		if err != nil {
			drop(s.MediaName.Media+" "+t, err)
		}
		return err != nil
	})
	return len(s.MediaName.Formats) > 0
}

// repairMaps completes rtpmap and fmtp lines. A picture without rtpmap is H264, or H265 if it has a VPS; its payload type
// becomes one that the library takes for its codec, as the packets' is not checked.
func (s *section) repairMaps() {
	var mapped []string
	for i := range s.Attributes {
		a := &s.Attributes[i]
		t, rest, _ := strings.Cut(a.Value, " ")
		rest = strings.ReplaceAll(rest, " ", "")
		switch a.Key {
		case "rtpmap":
			mapped = append(mapped, t)
			codec, _, _ := strings.Cut(rest, "/")
			if s.MediaName.Media == "video" {
				rest = strings.Replace(strings.ToUpper(codec), "HEVC", "H265", 1) + "/90000" // without channels
			}
			a.Value = t + " " + rest
		case "fmtp":
			a.Value = t + " " + repairSets(rest)
		}
	}
	for _, t := range mapped {
		if !slices.Contains(s.MediaName.Formats, t) {
			s.MediaName.Formats = append(s.MediaName.Formats, t)
		}
	}
	if s.MediaName.Media != "video" {
		return
	}
	for _, t := range slices.Clone(s.MediaName.Formats) {
		number, err := strconv.ParseUint(t, 10, 7)
		if err != nil {
			continue
		}
		if number >= 96 && !slices.Contains(mapped, t) {
			codec := "H264"
			if strings.Contains(s.value("fmtp", t), "sprop-vps") {
				codec = "H265"
			}
			s.Attributes = append(s.Attributes, sdp.Attribute{Key: "rtpmap", Value: t + " " + codec + "/90000"})
		}
		switch codec, _, _ := strings.Cut(s.value("rtpmap", t), "/"); codec {
		case "JPEG":
			s.rename(t, "26")
		case "H264", "H265", "VP8", "VP9", "AV1":
			for free := 96; number < 96 && free < 128; free++ {
				if f := strconv.Itoa(free); !slices.Contains(s.MediaName.Formats, f) {
					s.rename(t, f)
					break
				}
			}
		}
	}
}

// value returns an attribute of a payload type.
func (s *section) value(key, payloadType string) string {
	for _, a := range s.Attributes {
		if rest, ok := strings.CutPrefix(a.Value, payloadType+" "); ok && a.Key == key {
			return rest
		}
	}
	return ""
}

// control returns the address of the section, without its host: the library replaces it.
func (s *section) control() string {
	for _, a := range s.Attributes {
		if a.Key == "control" {
			if u, err := url.Parse(a.Value); err == nil && u.Host != "" {
				return u.RequestURI()
			}
			return a.Value
		}
	}
	return ""
}

// rename replaces a payload type.
func (s *section) rename(from, to string) {
	for i, t := range s.MediaName.Formats {
		if t == from {
			s.MediaName.Formats[i] = to
		}
	}
	for i, a := range s.Attributes {
		if rest, ok := strings.CutPrefix(a.Value, from+" "); ok && (a.Key == "rtpmap" || a.Key == "fmtp") {
			s.Attributes[i].Value = to + " " + rest
		}
	}
}

// repairSets completes the padding of base64 in parameter sets.
func repairSets(parameters string) string {
	all := strings.Split(parameters, ";")
	for i, p := range all {
		key, value, _ := strings.Cut(p, "=")
		switch strings.ToLower(key) {
		default:
			continue
		case "sprop-parameter-sets", "sprop-vps", "sprop-sps", "sprop-pps":
		}
		sets := strings.Split(value, ",")
		for k, set := range sets {
			set = strings.TrimRight(set, "=")
			sets[k] = set + strings.Repeat("=", (4-len(set)%4)%4)
		}
		all[i] = key + "=" + strings.Join(sets, ",")
	}
	return strings.Join(all, ";")
}

// readable returns the library's error for a payload type.
func (s *section) readable(payloadType string) error {
	_, err := format.Unmarshal((*sdp.MediaDescription)(s), payloadType)
	return err
}

// dropParameters removes the parameters of a payload type that cannot be read.
func (s *section) dropParameters(payloadType string, drop func(line string, err error)) {
	for i, a := range s.Attributes {
		all, ok := strings.CutPrefix(a.Value, payloadType+" ")
		if a.Key != "fmtp" || !ok {
			continue
		}
		good := slices.DeleteFunc(strings.Split(all, ";"), func(parameter string) bool {
			s.Attributes[i].Value = payloadType + " " + parameter
			err := s.readable(payloadType)
			if err != nil {
				drop(parameter, err)
			}
			return err != nil
		})
		s.Attributes[i].Value = payloadType + " " + strings.Join(good, ";")
	}
}

// readableKeys returns whether the library can read a key-mgmt attribute.
func readableKeys(a sdp.Attribute) bool {
	var m description.Media
	return m.Unmarshal(&sdp.MediaDescription{
		MediaName: sdp.MediaName{Media: "video", Formats: []string{"26"}}, Attributes: []sdp.Attribute{a},
	}) == nil
}
