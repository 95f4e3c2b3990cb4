package events

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// document is what the codec reads and writes. Its struct fields stand in the order of their JSON names, so that
// encoding it yields the canonical form of RFC 8785 and nothing needs to be sorted at run time; a test holds this.
type document[T any] interface {
	*T
	validate(at path) *DecodeError
}

// Encode writes a document in its canonical form (RFC 8785), its payloads too, whatever form they have.
//
// It fails only on a string that is not UTF-8 or a payload that is not JSON within the contract's limits, which no
// decoded document holds.
func Encode[T any, D document[T]](doc D) ([]byte, error) {
	w := newWriter()
	defer w.release()
	if err := write(w, (*T)(doc)); err != nil {
		return nil, err
	}
	return bytes.Clone(w.out), nil
}

// Canonical is what [Encode] writes, for a document that was decoded or made of decoded parts and so cannot fail: it
// writes payloads as they stand. It panics on a string that is not UTF-8.
func Canonical[T any, D document[T]](doc D) []byte {
	w := newWriter()
	defer w.release()
	mustWrite(w, (*T)(doc))
	return bytes.Clone(w.out)
}

// AppendCanonical appends to a buffer what [Canonical] gives.
func AppendCanonical[T any, D document[T]](to []byte, doc D) []byte {
	w := writer{out: to}
	mustWrite(&w, (*T)(doc))
	return w.out
}

// Decode reads a document strictly: its members exactly, no other and none twice, valid UTF-8, at most 32 levels
// deep, every number a plain integer within ±(2^53−1), every value of its documented form. What it returns encodes
// to the canonical form of data. The error is a [*DecodeError].
func Decode[T any, D document[T]](data []byte) (D, error) {
	doc, _, err := decode[T, D](data)
	return doc, err
}

// DecodeCanonical is [Decode] that gives the canonical form too, for a digest over it: data itself, where it is known to
// be in that form, as nearly all of it is.
func DecodeCanonical[T any, D document[T]](data []byte) (doc D, canonical []byte, err error) {
	doc, is, err := decode[T, D](data)
	switch {
	case err != nil:
		return nil, nil, err
	case is:
		return doc, data, nil
	}
	return doc, Canonical(doc), nil
}

func decode[T any, D document[T]](data []byte) (doc D, canonical bool, err error) {
	v := new(T)
	if canonical, err = decodeInto(data, v); err != nil {
		return nil, false, err
	}
	doc = v
	if err := doc.validate(nil); err != nil {
		return nil, false, err
	}
	return doc, canonical, nil
}

// Canonicalize gives the canonical form (RFC 8785) of any JSON value that keeps the contract's limits:
// no duplicate members, valid UTF-8, depth, plain integers. The error is a [*DecodeError].
func Canonicalize(data []byte) ([]byte, error) {
	var value jsontext.Value
	if _, err := decodeInto(data, &value); err != nil {
		return nil, err
	}
	return value, nil
}
