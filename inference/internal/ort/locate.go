package ort

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LibraryName is the file name that Locate looks for in the folders it knows.
const LibraryName = "libonnxruntime.so"

// Search says where the ONNX Runtime library may be.
type Search struct {
	// Library is an explicit file, or a folder that holds it. If it is set nothing else is looked at.
	Library string
	// Folders are looked through in this order. Nil means [DefaultFolders], and after them where the system's loader finds the library.
	Folders []string
}

// DefaultFolders are the places where the runtime is looked for: runtime/ beside the program, then runtime/ and bin/runtime/ in the
// working folder.
func DefaultFolders() []string {
	var folders []string
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		folders = append(folders, filepath.Join(filepath.Dir(exe), "runtime"))
	}
	return append(folders, "runtime", filepath.Join("bin", "runtime"))
}

// Locate finds the ONNX Runtime library and gives its absolute path. The error wraps ErrNoRuntime and says how to get one.
func Locate(s Search) (string, error) {
	if s.Library != "" {
		path, err := inFolder(s.Library)
		if err != nil {
			return "", fmt.Errorf("%w at %s: %w: `make runtime` (CPU) or `make runtime-cuda` fetches one", ErrNoRuntime, s.Library, err)
		}
		return path, nil
	}
	folders := s.Folders
	if folders == nil {
		folders = DefaultFolders()
	}
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		if path, err := inFolder(folder); err == nil {
			return path, nil
		}
	}
	if s.Folders == nil {
		for _, name := range []string{LibraryName + ".1", LibraryName} {
			if path := loaderFinds(name); path != "" {
				return inFolder(path)
			}
		}
	}
	return "", fmt.Errorf("%w: expected %s in one of %s: `make runtime` (CPU) or `make runtime-cuda` puts it into bin/runtime",
		ErrNoRuntime, LibraryName, strings.Join(folders, ", "))
}

// inFolder takes a library file or a folder that holds one and gives the absolute path of the file itself, links resolved.
func inFolder(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", unwrapPath(err)
	}
	if info.IsDir() {
		found, err := filepath.Glob(filepath.Join(path, LibraryName+"*"))
		if err != nil || len(found) == 0 {
			return "", fmt.Errorf("no %s in this folder", LibraryName)
		}
		// The plain name first, then .so.1, then .so.1.30.0.
		path = slices.MinFunc(found, func(a, b string) int { return len(a) - len(b) })
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", unwrapPath(err)
	}
	return filepath.Abs(path)
}

// unwrapPath drops the path from a file error, because the message names it already.
func unwrapPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// loaderFinds asks the system's loader for a library by its name alone; "" if there is none.
func loaderFinds(name string) string {
	var path [4096]C.char
	n := C.CString(name)
	defer freeString(n)
	if C.tl_find(n, &path[0], C.size_t(len(path))) == 0 {
		return ""
	}
	return C.GoString(&path[0])
}
