package whep

// CheckOffer reads what strangers send.
func CheckOffer(text string) error {
	o, err := readOffer(text)
	if err != nil {
		return err
	}
	_, _, err = o.engines()
	return err
}

// Live tells that there was a picture.
func (f *Feed) Live() bool { return f.present() != 0 }

// Past counts the comments that the next player gets.
func (f *Feed) Past() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.past)
}
