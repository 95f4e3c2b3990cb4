package registry

import (
	"strings"

	"github.com/afterwrite/afterwrite/events"
)

// Problem is one rule that a file breaks. It reads as one sentence.
type Problem struct {
	File string
	// Field is the member, as in registration.budget.timeout_ms; empty for the file itself.
	Field string
	// Rule is the rule, as in "must be a name".
	Rule string
}

func (p Problem) String() string {
	if p.Field == "" {
		return p.File + " " + p.Rule
	}
	return p.File + ": " + p.Field + " " + p.Rule
}

// Contradictions is everything for which nothing may start.
type Contradictions struct {
	Problems []Problem
	// Rejections are the hooks that would have been left out. A contradiction is often the consequence of one.
	Rejections []Rejection
}

// Error lists all problems, one a line, and after them what is wrong with the rejected hooks.
func (c *Contradictions) Error() string {
	var b strings.Builder
	b.WriteString("registry: nothing can run with these files:")
	for _, problem := range c.Problems {
		b.WriteString("\n  " + problem.String())
	}
	for _, rejection := range c.Rejections {
		for _, problem := range rejection.Problems {
			b.WriteString("\n  rejected: " + problem.String())
		}
	}
	return b.String()
}

// Rejection is a hook that was left out, everywhere or in one profile.
type Rejection struct {
	File string
	// HookID is empty where it could not be read.
	HookID events.HookID
	// Profile is the only profile it is left out of, or empty.
	Profile string
	// Reason is too_large, malformed or over_ceiling.
	Reason   events.RefusalReason
	Problems []Problem

	// raw is the file.
	raw []byte
}
