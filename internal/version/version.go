// Package version says which build this is.
package version

import "runtime/debug"

// stamped is set by the linker (-X) in released builds.
var stamped = ""

// Semantic is the version without a leading v, as in 1.2.3; 0.0.0 in a build that was not stamped.
func Semantic() string {
	if stamped == "" {
		return "0.0.0"
	}
	return stamped
}

// String is the version with the revision and toolchain it was built from, as far as the build knows them.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Semantic()
	}
	revision := "unknown"
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			revision = setting.Value
		}
	}
	return Semantic() + " (" + revision + ", " + info.GoVersion + ")"
}
