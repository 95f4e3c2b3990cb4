package events

import "github.com/go-json-experiment/json/jsontext"

// Judges gives what the two judges of a payload say on their own: whether the schema has a shape, whether that accepts
// the payload, and what the library says.
func (s *PayloadSchema) Judges(payload jsontext.Value) (shaped, accepted bool, library error) {
	return s.shape != nil, s.shape != nil && s.shape.accepts(payload), s.judge(payload)
}
