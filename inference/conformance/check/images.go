package check

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"touchline/inference/internal/ort"
	"touchline/inference/internal/vision"
)

type imageCase struct {
	Image     string  `json:"image"`
	MaxSlices int     `json:"max_slice_nums"`
	Grid      *[2]int `json:"grid"`
	Slices    []struct {
		Size   [2]int `json:"size"`
		RGB    string `json:"rgb_sha256"`
		Pixels string `json:"pixel_values_sha256"`
	} `json:"slices"`
	Patches [][2]int `json:"tgt_sizes"`
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// pictures is the check of the preprocessing of pictures.
type pictures struct{ *checker }

func (c pictures) images(cfg vision.Config) {
	p, err := vision.New(cfg, 1)
	if err != nil {
		c.row(stageImage, "checkpoint/preprocessor_config.json", 0, func(*tally) { must(err) })
		return
	}
	for _, name := range c.files.in("image") {
		base := strings.TrimPrefix(name, "image/")
		switch {
		case base == "cases.json":
			c.row(stageImage, name, 0, func(t *tally) { c.imageCases(t, p, name) })
		case base == "sizes.json":
			c.row(stageImage, name, 0, func(t *tally) { c.imageSizes(t, cfg, name) })
		case strings.HasPrefix(base, "resized_"):
			c.row(stageImage, name, 0, func(t *tally) { c.resized(t, p, name) })
		case strings.HasPrefix(base, "pixel_values_"):
			c.row(stageImage, name, 0, func(t *tally) { c.pixelValues(t, p, name) })
		}
	}
}

func (c pictures) imageCases(t *tally, p *vision.Preprocessor, name string) {
	var cases []imageCase
	c.files.json(name, &cases)
	for _, tt := range cases {
		pic := c.files.picture("image/" + tt.Image)
		plan := need(p.Config().Layout(pic.w, pic.h, tt.MaxSlices))
		var grid *[2]int
		if plan.Grid.Sliced() {
			grid = &[2]int{plan.Grid.Cols, plan.Grid.Rows}
		}
		what := fmt.Sprintf("%s cut into at most %d", tt.Image, tt.MaxSlices)
		t.exact((grid == nil) == (tt.Grid == nil) && (grid == nil || *grid == *tt.Grid), "%s: the grid differs", what)
		images := need(p.Images(nil, pic.w, pic.h, pic.pix, tt.MaxSlices))
		if len(images) != len(tt.Slices) || len(images) != len(tt.Patches) {
			t.exact(false, "%s: expected %d images, got %d", what, len(tt.Slices), len(images))
			continue
		}
		for i, m := range images {
			want := tt.Slices[i]
			strip := p.Strip(make([]float32, m.Patches()*p.PatchLen()), m)
			t.exact(want.Size == [2]int{m.Width, m.Height} && tt.Patches[i] == [2]int{m.Rows, m.Cols} &&
				want.RGB == hash(m.AppendRGB(nil)) && want.Pixels == hash(ort.Bytes(strip)),
				"%s: image %d: size, resized bytes or pixel values differ", what, i)
		}
	}
}

func (c pictures) imageSizes(t *tally, cfg vision.Config, name string) {
	var sizes []struct {
		Size      [2]int  `json:"size"`
		MaxSlices int     `json:"max_slice_nums"`
		Grid      *[2]int `json:"grid"`
		Overview  [2]int  `json:"overview"`
		Refine    *[2]int `json:"refine"`
	}
	c.files.json(name, &sizes)
	for _, tt := range sizes {
		plan := need(cfg.Layout(tt.Size[0], tt.Size[1], tt.MaxSlices))
		same := tt.Overview == [2]int{plan.Overview.W, plan.Overview.H} && (tt.Grid != nil) == plan.Grid.Sliced()
		if same && tt.Grid != nil {
			same = *tt.Grid == [2]int{plan.Grid.Cols, plan.Grid.Rows} &&
				(tt.Refine == nil || *tt.Refine == [2]int{plan.Refine.W, plan.Refine.H})
		}
		t.exact(same, "%v: expected %v, got %+v", tt.Size, tt, plan)
	}
}

// part parses a name such as "resized_<picture>_m<slices>_<index>.png".
func part(name, prefix string) (image string, maxSlices, index int, err error) {
	rest := strings.TrimPrefix(name, prefix)
	rest, _, _ = strings.Cut(rest, ".")
	i := strings.LastIndex(rest, "_m")
	if i < 0 {
		return "", 0, 0, fmt.Errorf("expected a name of the form %sPICTURE_mSLICES_INDEX, got %s", prefix, name)
	}
	slicesText, indexText, _ := strings.Cut(rest[i+2:], "_")
	if maxSlices, err = strconv.Atoi(slicesText); err == nil {
		index, err = strconv.Atoi(indexText)
	}
	return rest[:i] + ".png", maxSlices, index, err
}

// nth prepares the image of a picture that a fixture's name selects.
func (c pictures) nth(p *vision.Preprocessor, name, prefix string) vision.Image {
	file, maxSlices, index, err := part(name, prefix)
	must(err)
	pic := c.files.picture("image/" + file)
	images := need(p.Images(nil, pic.w, pic.h, pic.pix, maxSlices))
	if index < 0 || index >= len(images) {
		must(fmt.Errorf("%s: no image %d, the picture has %d", file, index, len(images)))
	}
	return images[index]
}

func (c pictures) resized(t *tally, p *vision.Preprocessor, name string) {
	m := c.nth(p, strings.TrimPrefix(name, "image/"), "resized_")
	want := c.files.picture(name)
	t.exact(m.Width == want.w && m.Height == want.h && bytes.Equal(m.AppendRGB(nil), want.pix), "the resized picture differs")
}

func (c pictures) pixelValues(t *tally, p *vision.Preprocessor, name string) {
	m := c.nth(p, strings.TrimPrefix(name, "image/"), "pixel_values_")
	file := c.tensors(name)
	strip := p.Strip(make([]float32, m.Patches()*p.PatchLen()), m)
	t.exact(slices.Equal(strip, file.floats("pixel_values")), "the pixel values differ")
	if file.has("rgb") {
		t.exact(bytes.Equal(m.AppendRGB(nil), file.get("rgb").Data), "the resized bytes differ")
	}
}
