package yard

import (
	"math"
	"sort"
)

// pose is a person or an animal at a moment.
type pose struct {
	x, y   float64 // metres
	dx, dy float64 // the direction it faces, of length 1, or 0
	walked float64 // metres so far: the phase of its steps
	moving bool
	doing  string
	parcel bool
	size   float64
	bend   float64 // 0 = upright, 1 = down to the ground
}

// inCar reports whether a car hides a person who gets in or out.
func (p pose) inCar() bool { return p.size < 1 && p.y > bayY-outside }

// locate returns the place on a way at a moment; ok is false before and after it.
func locate(way []point, t int64) (p pose, ok bool) {
	if t < way[0].t || t >= way[len(way)-1].t {
		return p, false
	}
	i := sort.Search(len(way), func(i int) bool { return way[i].t > t }) - 1
	a, b := way[i], way[i+1]
	k := float64(t-a.t) / float64(b.t-a.t)
	p = pose{x: a.x + (b.x-a.x)*k, y: a.y + (b.y-a.y)*k, doing: a.doing, parcel: a.parcel, size: a.size + (b.size-a.size)*k}
	for j := range i {
		p.walked += math.Hypot(way[j+1].x-way[j].x, way[j+1].y-way[j].y)
	}
	if length := math.Hypot(b.x-a.x, b.y-a.y); length > 0 {
		p.walked += k * length
		p.dx, p.dy, p.moving = (b.x-a.x)/length, (b.y-a.y)/length, true
	}
	if a.doing == leavingParcel || a.doing == takingParcel {
		// Down within the first half, up within the second: two waits with the same action.
		first := i+2 < len(way) && way[i+1].doing == a.doing
		p.bend, p.dx = 1-k, 1
		if first {
			p.bend = k
		}
		p.bend = smooth(p.bend)
	}
	return p, true
}

// place names the part of the yard.
func place(x, y float64) string {
	switch {
	case y > 7.6 && x < gateX1+2:
		return placeGate
	case math.Abs(x-doorX) < 2.4 && y > 6.9:
		return placeDoor
	case y < 3.6 && x > 4.9:
		return placeParking
	case y > 6.2:
		return placePath
	}
	return placeYard
}

// opening returns how far one of these is open, 0 to 1; ramp is the duration of opening.
func opening(periods []period, t, ramp int64) float64 {
	k := 0.0
	for _, p := range periods {
		k = max(k, min(share(t-p.start, ramp), share(p.end+ramp-t, ramp)))
	}
	return smooth(k)
}

// The way of a car: from the street through the gate to the lane, then into its bay.
const (
	turn   = 2.5 // m, radius
	street = 12.6
	// Parts of the way, one after the other.
	runIn   = 5.2
	quarter = turn * math.Pi / 2
)

// through returns the length of the straight part through the gate.
func through(bay int) float64 { return street - 2*turn - laneY(bay) }

// passes returns when an arriving car becomes visible in the gate, and when it has passed it, since
// it began to drive.
func (c *car) passes() (seen, inside int64) {
	speed := carWay(c.bay) / pullMean / driveMS
	return int64(4.2 / speed), int64((runIn + quarter + street - turn - wallY + carHalf + 0.5) / speed)
}

// carPlace returns the middle and the heading of a car after s metres of its way.
func carPlace(bay int, s float64) (x, y, dx, dy float64) {
	switch {
	case s < runIn:
		return driveX + turn + runIn - s, street, -1, 0
	case s < runIn+quarter:
		a := (s - runIn) / turn
		return driveX + turn - turn*math.Sin(a), street - turn + turn*math.Cos(a), -math.Cos(a), -math.Sin(a)
	case s < runIn+quarter+through(bay):
		return driveX, street - turn - (s - runIn - quarter), 0, -1
	case s < runIn+2*quarter+through(bay):
		a := (s - runIn - quarter - through(bay)) / turn
		return driveX + turn - turn*math.Cos(a), laneY(bay) + turn - turn*math.Sin(a), math.Sin(a), -math.Cos(a)
	}
	x = driveX + turn + (s - runIn - 2*quarter - through(bay))
	end := bayX(bay)
	begin := max(driveX+turn, end-5)
	k := max(0, min(1, (x-begin)/(end-begin-0.3)))
	slope := (bayY - laneY(bay)) * 6 * k * (1 - k) / (end - begin - 0.3)
	n := math.Hypot(1, slope)
	return x, laneY(bay) + (bayY-laneY(bay))*smooth(k), 1 / n, slope / n
}

// carWay returns the length of a car's way.
func carWay(bay int) float64 { return runIn + 2*quarter + through(bay) + bayX(bay) - driveX - turn }

// carPose is a car at a moment.
type carPose struct {
	x, y, dx, dy float64
	doing        string
	rolled       float64
	door         float64
}

// States of a car.
const (
	arriving = "arriving"
	parked   = "parked"
	leaving  = "leaving"
)

func (c *car) at(t int64) (p carPose, ok bool) {
	if t < c.arrive || t >= c.leave+driveMS {
		return p, false
	}
	way, k := carWay(c.bay), 1.0
	p.doing = parked
	switch {
	case t >= c.leave:
		p.doing, k = leaving, 1-pull(float64(t-c.leave)/driveMS)
	case t < c.arrive+driveMS:
		p.doing, k = arriving, 1-pull(1-float64(t-c.arrive)/driveMS)
	}
	p.rolled = k * way
	p.x, p.y, p.dx, p.dy = carPlace(c.bay, p.rolled)
	p.door = opening(c.doors, t, 400)
	return p, true
}

const (
	pullSoft = 0.3
	pullMean = 1 - pullSoft/2 // mean speed, of the full one
)

// pull goes from 0 to 1, slowly at first and then at even speed.
func pull(k float64) float64 {
	if k < pullSoft {
		return k * k / (2 * pullSoft) / pullMean
	}
	return (k - pullSoft/2) / pullMean
}
