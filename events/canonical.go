package events

// Canonical is the canonical form (RFC 8785) of a document that was decoded, or made of decoded parts. It is what
// [Encode] writes, for documents that cannot fail: it panics on strings that are not UTF-8.
func Canonical[T any, D document[T]](doc D) []byte { return mustEncode(doc) }

// Identity is the id the intent must have.
func (i *Intent) Identity() IntentID {
	return IntentIdentity(i.SourceDispatchID, i.IntentKind, i.PolicyVersion, i.Payload)
}
