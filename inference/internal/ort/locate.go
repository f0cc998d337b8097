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

// libraryName is the file name that Locate searches for.
const libraryName = "libonnxruntime.so"

// defaultFolders returns runtime/ next to the program, then runtime/ and bin/runtime/ in the working folder.
func defaultFolders() []string {
	var folders []string
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		folders = append(folders, filepath.Join(filepath.Dir(exe), "runtime"))
	}
	return append(folders, "runtime", filepath.Join("bin", "runtime"))
}

// Locate returns the absolute path of the ONNX Runtime library. library is the file or its folder; "" searches the default folders
// (runtime/ next to the program, runtime/ and bin/runtime/ in the working folder), then the path of the system's loader. The error wraps
// ErrNoRuntime and names the command that fetches one.
func Locate(library string) (string, error) {
	if library != "" {
		path, err := inFolder(library)
		if err != nil {
			return "", fmt.Errorf("%w at %s: %w: `make runtime` (CPU) or `make runtime-cuda` fetches one", ErrNoRuntime, library, err)
		}
		return path, nil
	}
	folders := defaultFolders()
	for _, folder := range folders {
		if path, err := inFolder(folder); err == nil {
			return path, nil
		}
	}
	for _, name := range []string{libraryName + ".1", libraryName} {
		if path := loaderFinds(name); path != "" {
			return inFolder(path)
		}
	}
	return "", fmt.Errorf("%w: expected %s in one of %s: `make runtime` (CPU) or `make runtime-cuda` puts it into bin/runtime",
		ErrNoRuntime, libraryName, strings.Join(folders, ", "))
}

// inFolder returns the absolute path of a library, given its file or its folder, with links resolved.
func inFolder(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", unwrapPath(err)
	}
	if info.IsDir() {
		found, err := filepath.Glob(filepath.Join(path, libraryName+"*"))
		if err != nil || len(found) == 0 {
			return "", fmt.Errorf("no %s in this folder", libraryName)
		}
		// The plain name first, then .so.1, then .so.1.30.0.
		path = slices.MinFunc(found, func(a, b string) int { return len(a) - len(b) })
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", unwrapPath(err)
	}
	return filepath.Abs(path)
}

// unwrapPath removes the path from a file error, for messages that already name it.
func unwrapPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// loaderFinds returns the path of a library in the path of the system's loader, or "".
func loaderFinds(name string) string {
	var path [4096]C.char
	n := C.CString(name)
	defer freeString(n)
	if C.tl_find(n, &path[0], C.size_t(len(path))) == 0 {
		return ""
	}
	return C.GoString(&path[0])
}
