package events

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// document is what the codec reads and writes. Its struct fields stand in the order of their JSON names, so that
// encoding it yields the canonical form of RFC 8785 and nothing needs to be sorted at run time; a test holds this.
type document[T any] interface {
	*T
	validate(at path) *DecodeError
}

// Encode writes a document in its canonical form (RFC 8785).
//
// It fails only on a string that is not UTF-8 or a payload that is not JSON, which no decoded document holds.
func Encode[T any, D document[T]](doc D) ([]byte, error) {
	return encode(doc)
}

// Canonical is what [Encode] writes, for a document that was decoded or made of decoded parts and so cannot fail. It
// panics on any other that does.
func Canonical[T any, D document[T]](doc D) []byte { return mustEncode(doc) }

func encode(v any) ([]byte, error) {
	out, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("events: encode %T: %w", v, err)
	}
	return out, nil
}

func mustEncode(v any) []byte {
	out, err := encode(v)
	if err != nil {
		panic(err)
	}
	return out
}

// Decode reads a document strictly: its members exactly, no other and none twice, valid UTF-8, at most 32 levels
// deep, every number a plain integer within ±(2^53−1), every value of its documented form. What it returns encodes
// to the canonical form of data. The error is a [*DecodeError].
func Decode[T any, D document[T]](data []byte) (D, error) {
	v := new(T)
	if err := decodeInto(data, v); err != nil {
		return nil, err
	}
	doc := D(v)
	if err := doc.validate(nil); err != nil {
		return nil, err
	}
	return doc, nil
}

// Canonicalize gives the canonical form (RFC 8785) of any JSON value that keeps the contract's limits:
// no duplicate members, valid UTF-8, depth, plain integers. The error is a [*DecodeError].
func Canonicalize(data []byte) ([]byte, error) {
	var value jsontext.Value
	if err := decodeInto(data, &value); err != nil {
		return nil, err
	}
	return value, nil
}
