// Package streams is the topology: which streams and consumers there are, what they are called, and how they are
// brought about.
//
// Every subject, stream and consumer name is built here and nowhere else, and can be read back by the Parse function
// of the same name. The topology is data ([Topology]), made from [Settings] by [Default]: [Plan] says what would be
// done about it, [Apply] does it, and [Check] says what differs. One command of the operator's tool applies; every
// other process only checks.
//
// [Publisher] is for orchestrators: it publishes a receipt so that repeating it is safe.
//
// What may live here: names, the topology, and the one way to publish a receipt. What may not: anything that decides
// about a document, or that consumes a stream.
//
// Read subjects.go first, then topology.go, then apply.go.
package streams
