package executors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// serviceCaller is the [Executor] that asks the service its grant names, and knows no capability: the request is made
// from the intent, the grant and the state, and the response is the result.
type serviceCaller struct {
	nc *nats.Conn
}

// serviceRequest is the payload that every such service takes.
type serviceRequest struct {
	EvaluatedAt events.Optional  `json:"evaluated_at"`
	Intents     []*events.Intent `json:"intents"`
	Policy      jsontext.Value   `json:"policy"`
	State       jsontext.Value   `json:"state"`
}

// Execute asks the service once. That nobody serves it is known for certain, and so is no attempt.
func (s *serviceCaller) Execute(ctx context.Context, intent *events.Intent, permit Permit) (*events.Packet, error) {
	request := serviceRequest{Intents: []*events.Intent{intent}, Policy: orNull(permit.Grant.Policy), State: orNull(permit.State)}
	if member := permit.Grant.EvaluatedAt; member != "" {
		value, ok := payloadString(intent, member)
		if !ok {
			return nil, Never(fmt.Errorf("the payload has no string %s", member))
		}
		request.EvaluatedAt = events.Optional(value)
	}
	payload, err := events.EncodeValue(request)
	if err != nil {
		return nil, Never(err)
	}
	data, err := events.Encode(&events.ServiceRequest{
		IdempotencyKey: intent.IntentID, Payload: payload, SchemaVersion: events.ServiceRequestSchema,
		Service: permit.Grant.Service, TimeoutMillis: int(permit.Grant.Timeout.Milliseconds()),
	})
	if err != nil {
		return nil, Never(err)
	}
	envelope := events.NewEnvelope(intent.IntentID, "afterwrite/executor/"+permit.Executor, events.ServiceRequestSchema, events.NewTimestamp(time.Now()))
	envelope.TraceParent, envelope.TraceState = permit.TraceParent, permit.TraceState
	reply, err := s.nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: streams.ServiceSubject(permit.Grant.Service), Header: nats.Header(envelope.Header()), Data: data,
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, NotStarted(err)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, Never(err)
	case err != nil:
		return nil, err
	}
	return s.packet(reply, intent.IntentID, permit.Grant.Service)
}

// packet reads the response. What is not one of this request is an error of the service, and not a result.
func (s *serviceCaller) packet(reply *nats.Msg, key, service string) (*events.Packet, error) {
	const refusedForGood = "400"
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
		err := fmt.Errorf("the service answered with error %q", code)
		if code == refusedForGood {
			return nil, Never(err)
		}
		return nil, Retry(err)
	}
	_, data, err := events.ReadEvent(events.Header(reply.Header), reply.Data)
	if err != nil {
		return nil, Retry(err)
	}
	response, err := events.Decode[events.ServiceResponse](data)
	if err != nil {
		return nil, Retry(err)
	}
	if response.IdempotencyKey != key || response.Service != service {
		return nil, Retry(errors.New("the service answered another request"))
	}
	var typed struct {
		SchemaVersion string `json:"schema_version"`
	}
	// A payload without a schema version gives a packet without one, which the core refuses.
	_ = json.Unmarshal(response.Payload, &typed)
	return &events.Packet{Data: response.Payload, SchemaVersion: typed.SchemaVersion}, nil
}

// payloadString gives the string member of the intent's payload.
func payloadString(intent *events.Intent, member string) (string, bool) {
	var payload map[string]jsontext.Value
	if err := json.Unmarshal(intent.Payload, &payload); err != nil {
		return "", false
	}
	var value string
	if payload[member].Kind() != '"' || json.Unmarshal(payload[member], &value) != nil || value == "" {
		return "", false
	}
	return value, true
}

func orNull(value jsontext.Value) jsontext.Value {
	if value == nil {
		return jsontext.Value("null")
	}
	return value
}
