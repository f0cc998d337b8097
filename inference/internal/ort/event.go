package ort

// #include "bridge.h"
import "C"

import "time"

// Event marks a point in a device's stream, to wait for the work before it and to measure the time between two points.
type Event struct {
	life   life
	device *Device
	event  C.tl_event
}

// NewEvent returns an event that is not recorded yet.
func (d *Device) NewEvent() (*Event, error) {
	if err := d.begin("make an event"); err != nil {
		return nil, err
	}
	e := &Event{device: d}
	if err := d.result("make an event", C.tl_event_create(d.cuda, C.int(d.index), &e.event)); err != nil {
		d.life.drop()
		return nil, err
	}
	e.life.born(kindEvent, func() {
		C.tl_event_destroy(d.cuda, C.int(d.index), &e.event)
		d.life.drop()
	})
	return e, nil
}

// Record puts the event after all work queued so far. Recording it again moves it.
func (e *Event) Record() error {
	return e.do("record an event", func(d *Device) C.int { return C.tl_event_record(d.cuda, C.int(d.index), &e.event, d.stream) })
}

// Wait blocks until the work before the event is done.
func (e *Event) Wait() error {
	return e.do("wait for an event", func(d *Device) C.int { return C.tl_event_wait(d.cuda, C.int(d.index), &e.event) })
}

// Done reports whether the work before the event is done.
func (e *Event) Done() (bool, error) {
	var done C.int
	err := e.do("query an event", func(d *Device) C.int { return C.tl_event_done(d.cuda, C.int(d.index), &e.event, &done) })
	return done != 0, err
}

// Since returns the device time between an earlier event and this one, which must be done. CUDA resolves half a microsecond.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	if !earlier.life.use() {
		return 0, closedError("event")
	}
	defer earlier.life.drop()
	var seconds C.double
	err := e.do("time an event", func(d *Device) C.int {
		return C.tl_event_elapsed(d.cuda, C.int(d.index), &earlier.event, &e.event, &seconds)
	})
	return time.Duration(float64(seconds) * float64(time.Second)), err
}

// Close frees the event.
func (e *Event) Close() error {
	e.life.end()
	return nil
}

func (e *Event) do(op string, f func(*Device) C.int) error {
	if !e.life.use() {
		return closedError("event")
	}
	defer e.life.drop()
	return e.device.result(op, f(e.device))
}
