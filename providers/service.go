package providers

import (
	"context"
	"fmt"
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// Service is the one implementation of a service name.
type Service interface {
	// Answer gives the payload of the response: any value that encodes as a JSON object of the return schema. ctx
	// ends at the request's deadline, at the service's own timeout, or when the provider gives up draining. An
	// [*events.DecodeError] says that the request is at fault, any other error that the service is.
	Answer(ctx context.Context, r *events.ServiceRequest) (any, error)
}

// ServiceFunc is a function as a [Service].
type ServiceFunc func(ctx context.Context, r *events.ServiceRequest) (any, error)

// Answer calls f.
func (f ServiceFunc) Answer(ctx context.Context, r *events.ServiceRequest) (any, error) {
	return f(ctx, r)
}

// service is a [Service] with what is promised about it.
type service struct {
	name    string
	timeout time.Duration
	returns *events.PayloadSchema
	answer  Service
}

// response gates an answer. It never changes one: what does not satisfy the schema is not sent.
func (s *service) response(r *events.ServiceRequest, answer any) ([]byte, error) {
	payload, err := events.EncodeValue(answer)
	if err != nil {
		return nil, &AnswerError{Rule: "a payload that is no JSON of the contract"}
	}
	if err := s.returns.Check(payload); err != nil {
		return nil, &AnswerError{Rule: "a payload that the return schema refuses"}
	}
	response := &events.ServiceResponse{
		IdempotencyKey: r.IdempotencyKey,
		Payload:        payload,
		SchemaVersion:  events.ServiceResponseSchema,
		Service:        s.name,
	}
	if err := events.Check(response); err != nil {
		return nil, &AnswerError{Rule: fmt.Sprintf("a response in which %v", err)}
	}
	return events.Canonical(response), nil
}
