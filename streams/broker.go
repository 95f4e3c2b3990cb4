package streams

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
)

// Headers that the broker understands, for those who publish without its client library.
const (
	// HeaderMessageID identifies a message within the stream's duplicate window.
	HeaderMessageID = jetstream.MsgIDHeader
	// HeaderExpectedSequence is the sequence that the last message on the subject must have; "0" is none.
	HeaderExpectedSequence = jetstream.ExpectedLastSubjSeqHeader
	// HeaderSchedule says when the broker publishes the message on its target.
	HeaderSchedule = jetstream.ScheduleHeader
	// HeaderScheduleTarget is the subject that the broker publishes on.
	HeaderScheduleTarget = jetstream.ScheduleTargetHeader
)

const apiPrefix = jetstream.DefaultAPIPrefix

// MsgNextSubject is where messages of a pull consumer are asked for.
func MsgNextSubject(stream, consumer string) string {
	return apiPrefix + "CONSUMER.MSG.NEXT." + stream + "." + consumer
}

// DirectGetLastSubject is where the last message of a subject is read, with an empty request, from any replica.
// A replica may not have what the leader acknowledged an instant ago.
func DirectGetLastSubject(stream, subject string) string {
	return apiPrefix + "DIRECT.GET." + stream + "." + subject
}

// MsgGetSubject is where a message is read from the stream's leader, named in the request.
func MsgGetSubject(stream string) string { return apiPrefix + "STREAM.MSG.GET." + stream }

// ScheduleHeader makes a message on [RetryAtSubject] the wake-up of the dispatch, due at the given time. It replaces
// the wake-up that the dispatch may have. A time that has passed is due at once, which takes the broker some 250 ms.
func ScheduleHeader(dispatchID events.DispatchID, hookID events.HookID, at time.Time) events.Header {
	return events.Header{
		// The client library's own option would cut the time to seconds; the server takes it as fine as it is.
		HeaderSchedule:       {"@at " + at.UTC().Format(time.RFC3339Nano)},
		HeaderScheduleTarget: {RetryDueSubject(dispatchID, hookID)},
	}
}

// FirstScheduleHeader is [ScheduleHeader] for a dispatch that is not to have a wake-up yet: the broker refuses it
// with a wrong last sequence if there is one.
func FirstScheduleHeader(dispatchID events.DispatchID, hookID events.HookID, at time.Time) events.Header {
	h := ScheduleHeader(dispatchID, hookID, at)
	h[HeaderExpectedSequence] = []string{"0"}
	return h
}
