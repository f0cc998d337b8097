package whep

// CheckOffer parses an untrusted offer.
func CheckOffer(text string) error {
	o, err := readOffer(text)
	if err != nil {
		return err
	}
	_, _, err = o.engines()
	return err
}

// Players returns the number of sessions of a room, of all rooms if room is "".
func (s *Server) Players(room string) int {
	n := 0
	for _, x := range s.Sessions() {
		if room == "" || x.Room == room {
			n++
		}
	}
	return n
}

// Live reports whether there was a picture.
func (f *Feed) Live() bool { return f.opts.Pictures.Codec() != 0 }

// Past returns the number of comments that the next player gets.
func (f *Feed) Past() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.past)
}
