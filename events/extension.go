package events

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// What a capability needs to keep its own documents (payloads, policies, decisions) under the rules of the contract.

// DecodeValue reads a document of a capability as strictly as [Decode], shaped by the fields of T: its members
// exactly, none twice, plain integers. A pointer, a [jsontext.Value] or an [Optional] may be null, nothing else.
// The values themselves are for the caller to check. The error is a [*DecodeError].
func DecodeValue[T any](data []byte) (*T, error) {
	v := new(T)
	if _, err := decodeInto(data, v); err != nil {
		return nil, err
	}
	return v, nil
}

// EncodeValue writes any value in canonical form (RFC 8785), under the contract's limits on depth and numbers.
func EncodeValue(v any) ([]byte, error) {
	out, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("events: encode %T: %w", v, err)
	}
	return Canonicalize(out)
}

// IsTimestamp reports whether s is an RFC 3339 time with an offset.
func IsTimestamp(s string) bool { return Timestamp(s).validate(nil) == nil }
