package dispatcher

import (
	"strconv"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
	"github.com/afterwrite/afterwrite/events"
)

// RedriveRequest asks, on the dispatcher's redrive service, for one failed dispatch to be tried anew.
type RedriveRequest struct {
	// Actor names the operator; an opaque id.
	Actor      string            `json:"actor"`
	DispatchID events.DispatchID `json:"dispatch_id"`
	HookID     events.HookID     `json:"hook_id"`
}

// parse decodes a request. The error is the sentence for the one who asked.
func parseRedrive(data []byte, reply string) (*lane.Request, error) {
	request, err := events.DecodeValue[RedriveRequest](data)
	if err != nil {
		return nil, err
	}
	switch {
	case !events.IsOpaqueID(request.Actor):
		return nil, &events.DecodeError{Fault: events.FaultValue, Path: "actor", Rule: "must be an opaque id"}
	case !events.IsDispatchID(request.DispatchID):
		return nil, &events.DecodeError{Fault: events.FaultValue, Path: "dispatch_id", Rule: "must be a dispatch id"}
	case !events.IsName(request.HookID):
		return nil, &events.DecodeError{Fault: events.FaultValue, Path: "hook_id", Rule: "must be a name"}
	}
	return &lane.Request{
		Key:      core.Key{Dispatch: request.DispatchID, Hook: request.HookID},
		Operator: request.Actor,
		Reply:    reply,
	}, nil
}

const (
	headerServiceErrorText = "Nats-Service-Error"

	codeBadRequest = 400
	codeConflict   = 409
	codeOurs       = 500
)

// answerHeader is that of the micro-service protocol: a record needs none, an error a code and a sentence.
func answerHeader(answer lane.Answer) events.Header {
	switch {
	case answer.Rejection != nil:
		return serviceError(codeConflict, answer.Rejection.Error())
	case answer.Err != nil:
		return serviceError(codeOurs, answer.Err.Error())
	}
	return nil
}

func serviceError(code int, text string) events.Header {
	return events.Header{headerServiceErrorText: {text}, headerServiceError: {strconv.Itoa(code)}}
}

// answerBody is the record that says redriven, or the closed reason of a rejection.
func answerBody(answer lane.Answer) []byte {
	switch {
	case answer.Record != nil:
		return events.Canonical(answer.Record)
	case answer.Rejection != nil:
		return []byte(answer.Rejection.Reason)
	}
	return nil
}
