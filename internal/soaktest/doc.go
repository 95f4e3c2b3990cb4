// Package soaktest runs the real dispatcher binary under load for as long as one likes: that its memory stays flat
// whatever waits, and that a hook that hangs holds up nobody else. In go test ./... each runs for a moment and holds
// what must add up; the long forms say what was measured. docs/testing.md has the commands. Nothing else lives here.
package soaktest
