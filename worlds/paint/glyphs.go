package paint

// glyph returns the pen strokes of a character on a grid 4 wide and 6 high,
// y down: pairs of digits are points, a space lifts the pen.
func glyph(r rune) string { //nolint:funlen // a table
	switch r {
	case '0':
		return "103041453616050110"
	case '1':
		return "112026 1636"
	case '2':
		return "0110304142060646"
	case '3':
		return "0110304142334445361605 1333"
	case '4':
		return "36300444"
	case '5':
		return "400002324345361605"
	case '6':
		return "4130100105163645443303"
	case '7':
		return "00404116"
	case '8':
		return "1030414233130201 10 1333444536160504 0413"
	case '9':
		return "0516364541301001021343"
	case 'A':
		return "062046 1434"
	case 'B':
		return "00063645443303 0030414233"
	case 'C':
		return "4130100105163645"
	case 'D':
		return "00062644422000"
	case 'E':
		return "40000646 0333"
	case 'F':
		return "400006 0333"
	case 'G':
		return "41301001051636454323"
	case 'H':
		return "0006 4046 0343"
	case 'I':
		return "2026"
	case 'J':
		return "404536160504"
	case 'K':
		return "0006 4003 0346"
	case 'L':
		return "000646"
	case 'M':
		return "0600234046"
	case 'N':
		return "06004640"
	case 'O':
		return "103041453616050110"
	case 'P':
		return "06003041423303"
	case 'Q':
		return "103041453616050110 2446"
	case 'R':
		return "06003041423303 2346"
	case 'S':
		return "413010010213334445361605"
	case 'T':
		return "0040 2026"
	case 'U':
		return "000516364540"
	case 'V':
		return "002640"
	case 'W':
		return "0016233640"
	case 'X':
		return "0046 4006"
	case 'Y':
		return "002340 2326"
	case 'Z':
		return "00400646"
	case ':':
		return "2222 2525"
	case '-':
		return "1333"
	case '!':
		return "2024 2626"
	}
	return ""
}

// Strokes calls line for each line segment of a text whose letters are 1 high.
func Strokes(text string, line func(x0, y0, x1, y1 float64)) {
	x := 0.0
	for _, r := range text {
		pen, px, py := false, 0.0, 0.0
		g := glyph(r)
		for i := 0; i+1 < len(g); {
			if g[i] == ' ' {
				pen = false
				i++
				continue
			}
			qx, qy := x+float64(g[i]-'0')/6, float64(g[i+1]-'0')/6
			if pen {
				line(px, py, qx, qy)
			}
			pen, px, py = true, qx, qy
			i += 2
		}
		x += letterWidth
	}
}

// letterWidth is the advance of a letter of height 1.
const letterWidth = 0.95

// TextWidth returns the width of a text whose letters are 1 high.
func TextWidth(text string) float64 {
	n := 0
	for range text {
		n++
	}
	return float64(n)*letterWidth - (letterWidth - 4.0/6)
}

// Text writes with its top left corner at (x, y) and letters of the given height.
func (c *Canvas) Text(x, y, height float64, s string, col RGB, weight float64) {
	r := height * weight
	Strokes(s, func(x0, y0, x1, y1 float64) {
		c.Capsule(x+x0*height, y+y0*height, x+x1*height, y+y1*height, r, col, 1)
	})
}
