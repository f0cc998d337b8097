package torch

import (
	"archive/zip"
	"bytes"
	"fmt"
)

// entry is a file in the archive.
type entry struct {
	name string
	data []byte // a part of the archive
	sum  uint32 // CRC-32
}

// readDirectory reads the zip's directory. All entries must be stored without compression, as
// torch.save does.
func readDirectory(content []byte) ([]entry, error) {
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, fmt.Errorf("not a file of torch.save (1.6 or newer), or truncated: %w", err)
	}
	entries := make([]entry, len(z.File))
	for i, f := range z.File {
		const encrypted = 1
		if f.Method != zip.Store || f.Flags&encrypted != 0 || f.CompressedSize64 != f.UncompressedSize64 {
			return nil, fmt.Errorf("zip: entry %.100q: must be neither compressed nor encrypted", f.Name)
		}
		at, err := f.DataOffset()
		if err != nil {
			return nil, fmt.Errorf("zip: entry %.100q: %w", f.Name, err)
		}
		if at < 0 || at > int64(len(content)) || f.UncompressedSize64 > uint64(len(content))-uint64(at) {
			return nil, fmt.Errorf("zip: entry %.100q: truncated: %d bytes exceed the file", f.Name, f.UncompressedSize64)
		}
		end := at + int64(f.UncompressedSize64) //nolint:gosec // at most the length
		entries[i] = entry{name: f.Name, data: content[at:end:end], sum: f.CRC32}
	}
	return entries, nil
}
