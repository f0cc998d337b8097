package mel

import "math"

// transform computes power spectra of frames of an even number of points, half of
// which is a product of 2, 3, 4 and 5: a complex transform of half the length
// (Stockham's, which needs no reordering), and its split into the spectrum of the
// real frame. In float64, so that its error is far below the error of float32 features.
// Not safe for concurrent use.
type transform struct {
	half   int
	passes []pass
	twist  []complex128 // exp(-πik/half)/i for k to half/2
	a, b   []complex128
}

// pass is one step: groups of radix values at a distance of m*stride.
type pass struct {
	radix, m, stride int
	turns            []complex128 // exp(-2πipk/(radix*m)): radix-1 values for each p below m
}

func newTransform(points int) *transform {
	t := &transform{half: points / 2}
	t.a, t.b = make([]complex128, t.half), make([]complex128, t.half)
	rest, stride := t.half, 1
	for rest > 1 {
		p := pass{stride: stride}
		for _, p.radix = range []int{5, 3, 4, 2} {
			if rest%p.radix == 0 {
				break
			}
		}
		p.m = rest / p.radix
		for i := range p.m {
			for k := 1; k < p.radix; k++ {
				p.turns = append(p.turns, turn(i*k, rest))
			}
		}
		t.passes = append(t.passes, p)
		rest, stride = p.m, stride*p.radix
	}
	for k := range t.half/2 + 1 {
		t.twist = append(t.twist, turn(k, points)/1i)
	}
	return t
}

// turn is exp(-2πik/n).
func turn(k, n int) complex128 {
	sin, cos := math.Sincos(2 * math.Pi * float64(k) / float64(n))
	return complex(cos, -sin)
}

// power writes |X[k]|² for k from 0 to half the points of the frame.
func (t *transform) power(dst, frame []float64) {
	a, b := t.a, t.b
	frame = frame[:2*len(a)]
	for i := range a {
		a[i] = complex(frame[2*i], frame[2*i+1])
	}
	for i := range t.passes {
		p := &t.passes[i]
		switch p.radix {
		case 2:
			p.two(b, a)
		case 3:
			p.three(b, a)
		case 4:
			p.four(b, a)
		case 5:
			p.five(b, a)
		}
		a, b = b, a
	}
	n := t.half
	first := a[0]
	dst = dst[:n+1]
	dst[0] = square(real(first) + imag(first))
	dst[n] = square(real(first) - imag(first))
	for k := 1; k <= n/2; k++ {
		x, y := a[k], a[n-k]
		y = complex(real(y), -imag(y))
		even, odd := x+y, (x-y)*t.twist[k] // twice the spectra of the even and odd points
		dst[k] = (square(real(even)+real(odd)) + square(imag(even)+imag(odd))) / 4
		dst[n-k] = (square(real(even)-real(odd)) + square(imag(even)-imag(odd))) / 4
	}
}

func square(x float64) float64 { return x * x }

func (p *pass) two(y, x []complex128) {
	s, step := p.stride, p.m*p.stride
	for i := range p.m {
		w := p.turns[i]
		a, b := x[i*s:][:s], x[i*s+step:][:s]
		c, d := y[2*i*s:][:s], y[2*i*s+s:][:s]
		for q, u := range a {
			v := b[q]
			c[q], d[q] = u+v, (u-v)*w
		}
	}
}

func (p *pass) three(y, x []complex128) {
	s, step := p.stride, p.m*p.stride
	const sin = 0.866025403784438646763723170752936183 // of 120°
	for i := range p.m {
		w1, w2 := p.turns[2*i], p.turns[2*i+1]
		x0, x1, x2 := x[i*s:][:s], x[i*s+step:][:s], x[i*s+2*step:][:s]
		y0, y1, y2 := y[3*i*s:][:s], y[(3*i+1)*s:][:s], y[(3*i+2)*s:][:s]
		for q, u := range x0 {
			sum, diff := x1[q]+x2[q], x1[q]-x2[q]
			mid := complex(real(u)-real(sum)/2, imag(u)-imag(sum)/2)
			side := complex(sin*imag(diff), -sin*real(diff)) // -i·sin·diff
			y0[q], y1[q], y2[q] = u+sum, (mid+side)*w1, (mid-side)*w2
		}
	}
}

func (p *pass) four(y, x []complex128) {
	s, step := p.stride, p.m*p.stride
	for i := range p.m {
		w := p.turns[3*i:][:3]
		w1, w2, w3 := w[0], w[1], w[2]
		x0, x1, x2, x3 := x[i*s:][:s], x[i*s+step:][:s], x[i*s+2*step:][:s], x[i*s+3*step:][:s]
		y0, y1, y2, y3 := y[4*i*s:][:s], y[(4*i+1)*s:][:s], y[(4*i+2)*s:][:s], y[(4*i+3)*s:][:s]
		for q, u := range x0 {
			a, b := u+x2[q], u-x2[q]
			c, d := x1[q]+x3[q], x1[q]-x3[q]
			d = complex(imag(d), -real(d)) // -i·d
			y0[q], y1[q], y2[q], y3[q] = a+c, (b+d)*w1, (a-c)*w2, (b-d)*w3
		}
	}
}

func (p *pass) five(y, x []complex128) {
	s, step := p.stride, p.m*p.stride
	const (
		cos1 = 0.309016994374947424102293417182819059 // of 72° and 144°
		cos2 = -0.809016994374947424102293417182819059
		sin1 = 0.951056516295153572116439333379382143
		sin2 = 0.587785252292473129168705954639072769
	)
	for i := range p.m {
		w := p.turns[4*i:][:4]
		x0, x1, x2, x3, x4 := x[i*s:][:s], x[i*s+step:][:s], x[i*s+2*step:][:s], x[i*s+3*step:][:s], x[i*s+4*step:][:s]
		y0, y1, y2, y3, y4 := y[5*i*s:][:s], y[(5*i+1)*s:][:s], y[(5*i+2)*s:][:s], y[(5*i+3)*s:][:s], y[(5*i+4)*s:][:s]
		for q, u := range x0 {
			a, d := x1[q]+x4[q], x1[q]-x4[q]
			b, c := x2[q]+x3[q], x2[q]-x3[q]
			near := complex(real(u)+cos1*real(a)+cos2*real(b), imag(u)+cos1*imag(a)+cos2*imag(b))
			far := complex(real(u)+cos2*real(a)+cos1*real(b), imag(u)+cos2*imag(a)+cos1*imag(b))
			nearSide := complex(sin1*imag(d)+sin2*imag(c), -sin1*real(d)-sin2*real(c))
			farSide := complex(sin2*imag(d)-sin1*imag(c), -sin2*real(d)+sin1*real(c))
			y0[q] = u + a + b
			y1[q], y4[q] = (near+nearSide)*w[0], (near-nearSide)*w[3]
			y2[q], y3[q] = (far+farSide)*w[1], (far-farSide)*w[2]
		}
	}
}
