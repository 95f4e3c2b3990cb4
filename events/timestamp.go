package events

import "time"

// Timestamp is an RFC 3339 time with an offset, kept as it was written: a digest covers its spelling.
type Timestamp string

// NewTimestamp writes t in UTC with as many fractional digits as it has.
func NewTimestamp(t time.Time) Timestamp {
	return Timestamp(t.UTC().Format(time.RFC3339Nano))
}

// Time is the instant. It is the zero time for a timestamp that no decoder has checked and that is not one.
func (t Timestamp) Time() time.Time {
	at, err := time.Parse(time.RFC3339Nano, string(t))
	if err != nil {
		return time.Time{}
	}
	return at
}

func (t Timestamp) validate(at path) *DecodeError {
	if !isTimestamp(string(t)) {
		return at.bad("must be an RFC 3339 time with an offset")
	}
	return nil
}

// isTimestamp is stricter than time.Parse, which also takes a comma, hours of one digit, and an offset of 24 hours.
func isTimestamp(s string) bool {
	const seconds = "0000-00-00T00:00:00"
	if len(s) < len(seconds)+1 || !matches(s[:len(seconds)], seconds) {
		return false
	}
	offset := s[len(seconds):]
	if offset[0] == '.' {
		fraction := leading(offset[1:], isDigit)
		if fraction == "" {
			return false
		}
		offset = offset[1+len(fraction):]
	}
	if offset != "Z" {
		if !matches(offset, "+00:00") && !matches(offset, "-00:00") || offset[1:3] > "23" || offset[4:] > "59" {
			return false
		}
	}
	_, err := time.Parse(time.RFC3339Nano, s) // days of a month, and the like
	return err == nil
}

// matches reports whether s has a digit wherever form has one, and otherwise its letters.
func matches(s, form string) bool {
	if len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		if s[i] != form[i] && (form[i] != '0' || !isDigit(s[i])) {
			return false
		}
	}
	return true
}
