package executors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/zap"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors/core"
	"github.com/afterwrite/afterwrite/internal/version"
	"github.com/afterwrite/afterwrite/streams"
)

// Answer is what a person says about an intent of a manual grant.
type Answer struct {
	Executor events.ExecutorID
	IntentID events.IntentID
	// Actor names the person, or the policy that answers like one.
	Actor string
	// Budget accepted; zero members accept what was granted. Not looked at when refusing.
	Budget events.IntentBudget
	// WriteScope accepted; nil accepts what was granted. Not looked at when refusing.
	WriteScope []string
}

// Answered is what became of an [Answer].
type Answered struct {
	// Rejection says, in one sentence, why the answer was not taken; null if it was.
	Rejection events.Optional `json:"rejection"`
	// Status of the execution from now on; null if there is none.
	Status events.Optional `json:"status"`
}

// answerPayload is the payload of the request.
type answerPayload struct {
	Actor      string              `json:"actor"`
	Budget     events.IntentBudget `json:"budget"`
	IntentID   events.IntentID     `json:"intent_id"`
	WriteScope *[]string           `json:"write_scope"`
}

const (
	acceptVerb    = "accept"
	refuseVerb    = "refuse"
	answerTimeout = 5 * time.Second
)

// Accept asks the executor to accept an awaiting intent, as granted or narrower. Repeated, it answers the same. The
// error is the connection's or the executor's; a rejection is in the answer.
func Accept(ctx context.Context, nc *nats.Conn, a Answer) (*Answered, error) {
	return ask(ctx, nc, acceptVerb, a)
}

// Refuse asks the executor to refuse an awaiting intent for good. Repeated, it answers the same.
func Refuse(ctx context.Context, nc *nats.Conn, a Answer) (*Answered, error) {
	return ask(ctx, nc, refuseVerb, a)
}

// answerService is the name of the service by which an executor is told.
func answerService(executor events.ExecutorID, verb string) string { return executor + "." + verb }

func ask(ctx context.Context, nc *nats.Conn, verb string, a Answer) (*Answered, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body := answerPayload{Actor: a.Actor, Budget: a.Budget, IntentID: a.IntentID}
	if a.WriteScope != nil {
		body.WriteScope = &a.WriteScope
	}
	payload, err := events.EncodeValue(body)
	if err != nil {
		return nil, err
	}
	service := answerService(a.Executor, verb)
	data, err := events.Encode(&events.ServiceRequest{
		IdempotencyKey: a.IntentID, Payload: payload, SchemaVersion: events.ServiceRequestSchema,
		Service: service, TimeoutMillis: int(answerTimeout.Milliseconds()),
	})
	if err != nil {
		return nil, err
	}
	envelope := events.NewEnvelope(a.IntentID, "afterwrite/operator", events.ServiceRequestSchema, events.NewTimestamp(time.Now()))
	reply, err := nc.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: streams.ServiceSubject(service), Header: nats.Header(envelope.Header()), Data: data,
	})
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("no executor %s with a manual grant is running", a.Executor)
	}
	if err != nil {
		return nil, fmt.Errorf("ask executor %s: %w", a.Executor, err)
	}
	if text := reply.Header.Get(micro.ErrorHeader); text != "" {
		return nil, fmt.Errorf("executor %s: %s", a.Executor, text)
	}
	_, data, err = events.ReadEvent(events.Header(reply.Header), reply.Data)
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", a.Executor, err)
	}
	response, err := events.Decode[events.ServiceResponse](data)
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", a.Executor, err)
	}
	return events.DecodeValue[Answered](response.Payload)
}

// serveAnswers answers persons, where a grant is manual. The function it gives stops that.
func (p *Process) serveAnswers() (stop func(), err error) {
	manual := false
	for _, g := range p.opts.Grants {
		manual = manual || g.Manual
	}
	if !manual {
		return func() {}, nil
	}
	name := streams.Token(p.opts.Executor)
	service, err := micro.AddService(p.nc, micro.Config{
		Name: name, Version: version.Semantic(), QueueGroup: name, Description: "answers to intents of manual grants",
	})
	if err != nil {
		return nil, fmt.Errorf("executors: serve answers: %w", err)
	}
	for verb, command := range map[string]func(core.Key, *answerPayload) core.Command{
		acceptVerb: func(key core.Key, a *answerPayload) core.Command {
			c := core.AcceptIntent{Key: key, Budget: a.Budget, Now: p.opts.Now()}
			if a.WriteScope != nil {
				c.WriteScope = append([]string{}, *a.WriteScope...)
			}
			return c
		},
		refuseVerb: func(key core.Key, _ *answerPayload) core.Command {
			return core.RefuseIntent{Key: key, Now: p.opts.Now()}
		},
	} {
		name := answerService(p.opts.Executor, verb)
		handler := micro.HandlerFunc(func(r micro.Request) {
			if err := p.answer(r, name, command); err != nil {
				_ = r.Error("400", err.Error(), nil)
			}
		})
		err := service.AddEndpoint(streams.Token(name), handler,
			micro.WithEndpointSubject(streams.ServiceSubject(name)), micro.WithEndpointQueueGroup(streams.Token(name)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("executors: serve answers: %w", err), service.Stop())
		}
	}
	return func() {
		if err := service.Stop(); err != nil {
			p.log.Info("stop answering", zap.Error(err))
		}
	}, nil
}

// answer takes one answer. Its error is the request's fault or the broker's, and holds nothing of the request.
func (p *Process) answer(r micro.Request, service string, command func(core.Key, *answerPayload) core.Command) error {
	trace, data, err := events.ReadEvent(events.Header(r.Headers()), r.Data())
	if err != nil {
		return err
	}
	request, err := events.Decode[events.ServiceRequest](data)
	if err != nil {
		return err
	}
	asked, err := events.DecodeValue[answerPayload](request.Payload)
	if err != nil {
		return err
	}
	switch {
	case request.Service != service:
		return errors.New("service must be the one of the subject")
	case !events.IsIntentID(asked.IntentID):
		return errors.New("intent_id must be an intent id")
	case !events.IsOpaqueID(asked.Actor):
		return errors.New("actor must be an opaque id")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(request.TimeoutMillis)*time.Millisecond)
	defer cancel()
	answered, err := p.take(ctx, command(core.Key{Intent: asked.IntentID, Executor: p.opts.Executor}, asked), core.Person(asked.Actor), trace)
	if err != nil {
		p.log.Warn("answer not taken", zap.Error(err))
		return errors.New("the answer could not be recorded; ask again")
	}
	payload, err := events.EncodeValue(answered)
	if err != nil {
		return err
	}
	out, err := events.Encode(&events.ServiceResponse{
		IdempotencyKey: request.IdempotencyKey, Payload: payload, SchemaVersion: events.ServiceResponseSchema, Service: service,
	})
	if err != nil {
		return err
	}
	envelope := events.NewEnvelope(asked.IntentID, p.ledger.source, events.ServiceResponseSchema, events.NewTimestamp(p.opts.Now()))
	return r.Respond(out, micro.WithHeaders(micro.Headers(envelope.Header())))
}

// take commits a person's command.
func (p *Process) take(ctx context.Context, command core.Command, actor core.Actor, trace events.Envelope) (*Answered, error) {
	state := core.State{Grants: p.grants, Executions: map[core.Key]core.Entry{}}
	for range maxDecisions {
		for _, key := range core.Needs(command, state, actor) {
			entry, _, err := p.ledger.load(ctx, key)
			if err != nil {
				return nil, err
			}
			state.Executions[key] = entry
		}
		result, err := core.Commit(command, state, actor)
		if rejection := (*core.Rejection)(nil); errors.As(err, &rejection) {
			return &Answered{Rejection: events.Optional(rejection.Error()), Status: events.Optional(rejection.Status)}, nil
		}
		if err != nil {
			return nil, err
		}
		if result.Save == nil {
			return &Answered{Status: events.Optional(result.Outcome)}, nil
		}
		entry, err := p.ledger.append(ctx, result.Save, trace)
		if err == nil {
			p.observe(entry.Record)
			return &Answered{Status: events.Optional(entry.Record.Status)}, nil
		}
		if !errors.Is(err, errLost) {
			return nil, err
		}
		clear(state.Executions)
	}
	return nil, errLost
}
