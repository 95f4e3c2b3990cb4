// Package failpoint ends the dispatcher's process, as kill -9 would, just before or just after one of its effects. It
// is for the crash tests alone: without the build tag failpoint nothing of it is in the binary.
//
// With the tag, AFTERWRITE_FAILPOINT=after_append:3 kills the process right after its third append was sent. The names
// are before_ and after_ with an [Effect].
package failpoint

// Effect names a kind of effect that the dispatcher has on the world.
type Effect string

const (
	// Pull asks for messages.
	Pull Effect = "pull"
	// Call sends an input to a provider.
	Call Effect = "call"
	// Load reads a record of the journal.
	Load Effect = "load"
	// Append writes to the journal.
	Append Effect = "append"
	// Publish creates an intent.
	Publish Effect = "publish"
	// Schedule creates or replaces a wake-up.
	Schedule Effect = "schedule"
	// Acknowledge ends a message.
	Acknowledge Effect = "acknowledge"
	// HandBack returns a message.
	HandBack Effect = "hand_back"
	// Progress tells that a message is still worked on.
	Progress Effect = "progress"
	// Answer ends an operator's request.
	Answer Effect = "answer"
)

// Effects are all of them.
var Effects = []Effect{Pull, Call, Load, Append, Publish, Schedule, Acknowledge, HandBack, Progress, Answer}
