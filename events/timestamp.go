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
	// time.Parse also takes a comma, and hours and offsets of one digit, none of which RFC 3339 has.
	const shortest = len("2006-01-02T15:04:05Z")
	s := string(t)
	ok := len(s) >= shortest && s[10] == 'T' && s[13] == ':' && (s[19] == '.' || s[19] == 'Z' || s[19] == '+' || s[19] == '-')
	if ok && s[len(s)-1] != 'Z' {
		offset := s[len(s)-min(len(s), len("+00:00")):]
		ok = (offset[0] == '+' || offset[0] == '-') && offset[3] == ':' && offset[1] <= '2' && offset[4] <= '5'
	}
	if ok {
		_, err := time.Parse(time.RFC3339Nano, s)
		ok = err == nil
	}
	if !ok {
		return at.bad("must be an RFC 3339 time with an offset")
	}
	return nil
}
