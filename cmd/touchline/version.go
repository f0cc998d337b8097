package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
)

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run() error {
	_, err := fmt.Println("touchline", describeBuild(buildInfo()))
	return err
}

// versionFlag is --version, the flag for the command version.
type versionFlag bool

// BeforeReset prints the version before anything else is parsed, and ends the program.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	err := versionCmd{}.Run()
	app.Exit(0)
	return err
}

// buildInfo returns the build information of this program, nil without any.
func buildInfo() *debug.BuildInfo {
	info, _ := debug.ReadBuildInfo()
	return info
}

// moduleVersion returns the release of a build, with which a worker registers.
func moduleVersion(info *debug.BuildInfo) string {
	switch {
	case info == nil || info.Main.Version == "":
		return "unknown"
	case info.Main.Version == "(devel)":
		return "development build"
	}
	return info.Main.Version
}

// describeBuild returns release, commit (if known) and Go version of a build.
func describeBuild(info *debug.BuildInfo) string {
	version := moduleVersion(info)
	if info == nil {
		return version
	}
	vcs := map[string]string{}
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	var details []string
	if revision := vcs["vcs.revision"]; revision != "" {
		const short = 12
		details = append(details, revision[:min(short, len(revision))]+" of "+vcs["vcs.time"])
		if vcs["vcs.modified"] == "true" {
			details = append(details, "modified")
		}
	}
	return fmt.Sprintf("%s (%s)", version, strings.Join(append(details, info.GoVersion), ", "))
}
