package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/dispatcher"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

const (
	// patience is how long anything may take that a test waits for, a machine busy with other tests included.
	patience = 60 * time.Second
	// poll is how often the broker is asked, which has no signal for what is waited for.
	poll = 10 * time.Millisecond
	// askAgain is how long an operator waits for an answer.
	askAgain = 250 * time.Millisecond
	// ackWait is short: what a killed dispatcher had taken comes again after it.
	ackWait = time.Second

	hookID       events.HookID       = "inventory.recount"
	capabilityID events.CapabilityID = "inventory"
	intentKind   events.IntentKind   = "inventory.recount_shelf"

	maxInvocations = 4
	maxAttempts    = 6
)

const hookFile = `
max_in_flight: %d
registration:
  schema_version: loopx_post_writeback_capability_hook_registration_v0
  hook_id: inventory.recount
  capability_id: inventory
  phase: post_writeback
  event_kinds: [replan_recorded]
  intent_kinds: [inventory.recount_shelf]
  requested_read_scope: [settlement_identity, bounded_event_projection]
  budget: {max_invocations_per_dispatch: 4, max_intents_per_dispatch: 2, max_result_bytes: 4096, timeout_ms: 5000}
  failure_policy: isolate
payload_schemas:
  inventory.recount_shelf: {type: object}
`

const profilesFile = `
profiles:
  default: {enabled: true, hooks: [inventory.recount], retry: {max_attempts: 6, initial: 100ms, max: 400ms}}
`

// settings are those that the streams are applied with and that the dispatcher is told.
func settings() streams.Settings {
	return streams.Settings{Hooks: []events.HookID{hookID}, AckWait: ackWait}
}

// world is a broker with a provider, an orchestrator and an operator, for one dispatcher at a time.
type world struct {
	t        *testing.T
	ctx      context.Context
	url      string
	nc       *nats.Conn
	js       jetstream.JetStream
	flags    []string
	provider *provider

	published []*events.Receipt
	last      uint64 // sequence of the last message among the receipts
}

func newWorld(t *testing.T, places int) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, url: natsembed.StartTest(t).ClientURL()}
	var err error
	if w.nc, err = nats.Connect(w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	if _, err := streams.Apply(ctx, w.js, streams.Default(settings())); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"hook.yaml": fmt.Sprintf(hookFile, places), "profiles.yaml": profilesFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.flags = []string{
		"--nats-url", w.url, "--hooks", filepath.Join(dir, "hook.yaml"), "--profiles", filepath.Join(dir, "profiles.yaml"),
		"--ack-wait", ackWait.String(), "--listen=", "--lanes=1",
	}
	w.provider = &provider{w: w, calls: map[events.DispatchID]int{}}
	return w
}

// process is one life of the dispatcher.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{} // closed once it is over, and err is set
	err    error
}

// start runs the dispatcher, to die at the point if one is given.
func (w *world) start(at *point) *process {
	w.t.Helper()
	p := &process{cmd: exec.Command(binary, w.flags...), ended: make(chan struct{})}
	p.cmd.Env = os.Environ()
	if at != nil {
		p.cmd.Env = append(p.cmd.Env, "AFTERWRITE_FAILPOINT="+at.String())
	}
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be over already
		<-p.ended
		if w.t.Failed() {
			w.t.Logf("the dispatcher at %v said:\n%s", at, &p.stderr)
		}
	})
	return p
}

// killed reports whether the process ended by SIGKILL, which is how a point ends it.
func (p *process) killed() bool {
	exit := (*exec.ExitError)(nil)
	return errors.As(p.err, &exit) && strings.Contains(exit.Error(), "killed")
}

// stop ends the process in order.
func (w *world) stop(p *process) {
	w.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		w.t.Fatal(err)
	}
	<-p.ended
	if p.err != nil {
		w.t.Errorf("the dispatcher ended with %v, want an orderly stop", p.err)
	}
}

// eventually looks until there is nothing to complain about. It gives up, without complaint, once ended is closed.
func (w *world) eventually(ended <-chan struct{}, look func() (complaint string)) (reached bool) {
	w.t.Helper()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		complaint := look()
		if complaint == "" {
			return true
		}
		select {
		case <-ticker.C:
		case <-ended:
			return false
		case <-w.ctx.Done():
			w.t.Fatalf("after %s still: %s", patience, complaint)
		}
	}
}

// publish publishes a receipt, as an orchestrator does.
func (w *world) publish(r *events.Receipt) {
	w.t.Helper()
	published, err := streams.NewPublisher(w.js, streams.PublisherOptions{}).Publish(w.ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.published = append(w.published, r)
	w.last = max(w.last, published.Sequence)
}

// receipt number i says fact.
func receipt(i int, fact string) *events.Receipt {
	effect := fmt.Sprintf("effect_%d", i)
	return &events.Receipt{
		SchemaVersion: events.ReceiptSchema, Profile: "default", EventKind: events.ReplanRecorded,
		Plan: events.Settlement{
			AgentID: "agent", EffectID: effect, GoalID: "goal", TodoID: "todo", TurnInstanceID: fmt.Sprintf("turn_%d", i),
		},
		Receipt: events.WritebackReceipt{
			Checkpointed: true, CommittedAt: events.NewTimestamp(time.Now()), EffectID: effect,
			ReceiptID: fmt.Sprintf("receipt_%d", i), StateRevision: "rev", Status: events.Committed,
			StepKind: events.DurableWriteback,
		},
		Projection: events.Projection{
			FactRefs: []string{fact}, SchemaVersion: events.ProjectionSchema, Transition: events.ReplanEntered,
		},
	}
}

// provider answers for the hook, with the answer it has at the moment.
type provider struct {
	w   *world
	sub *nats.Subscription

	mu     sync.Mutex
	calls  map[events.DispatchID]int
	broken bool
	takes  time.Duration
	wg     sync.WaitGroup
}

// serve begins to answer.
func (p *provider) serve() {
	p.w.t.Helper()
	if p.sub != nil {
		return
	}
	sub, err := p.w.nc.QueueSubscribe(streams.CallSubject(hookID), "provider", func(m *nats.Msg) {
		p.wg.Go(func() { p.answer(m) })
	})
	if err == nil {
		err = p.w.nc.Flush()
	}
	if err != nil {
		p.w.t.Fatal(err)
	}
	p.sub = sub
	p.w.t.Cleanup(func() {
		p.w.nc.Close() // nothing is called any more
		p.wg.Wait()
	})
}

func (p *provider) set(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

func (p *provider) answer(m *nats.Msg) {
	_, data, err := events.ReadEvent(events.Header(m.Header), m.Data)
	if err != nil {
		p.w.t.Errorf("a call is no event: %v", err)
		return
	}
	in, err := events.Decode[events.HookInput](data)
	if err != nil {
		p.w.t.Errorf("a call is no input: %v", err)
		return
	}
	p.mu.Lock()
	p.calls[in.DispatchID]++
	broken, takes := p.broken, p.takes
	p.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-p.w.ctx.Done():
			return
		}
	}
	if broken {
		p.send(m, nats.Header{"Nats-Service-Error": {"broken"}, "Nats-Service-Error-Code": {"500"}}, nil)
		return
	}
	result := resultOf(in.DispatchID, in.Projection.FactRefs[0])
	envelope := events.NewEnvelope(in.DispatchID, "afterwrite/test", events.HookResultSchema, "")
	p.send(m, nats.Header(envelope.Header()), events.Canonical(result))
}

func (p *provider) send(m *nats.Msg, header nats.Header, data []byte) {
	// Whoever asked may be dead, and the test over.
	_ = p.w.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: header, Data: data})
}

// resultOf is the provider's one true answer: as many intents as the fact says, none being not applicable.
func resultOf(dispatch events.DispatchID, fact string) *events.HookResult {
	result := &events.HookResult{
		CapabilityID: capabilityID, DispatchID: dispatch, HookID: hookID,
		SchemaVersion: events.HookResultSchema, Status: events.ResultNotApplicable,
	}
	for shelf := range intentsOf[fact] {
		intent := events.Intent{
			Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, CapabilityID: capabilityID,
			FailurePolicy: events.Isolate, HookID: hookID, IntentKind: intentKind, Operation: "recount",
			Payload: jsontext.Value(fmt.Sprintf(`{"shelf":"shelf_%d"}`, shelf)), PolicyVersion: "v0",
			SchemaVersion: events.IntentSchema, SourceDispatchID: dispatch,
		}
		intent.IntentID = intent.Identity()
		result.Status, result.Intents = events.ResultProposed, append(result.Intents, intent)
	}
	return result
}

// redrive asks, as an operator does, until somebody answers. It gives up once ended is closed.
func (w *world) redrive(ended <-chan struct{}, dispatch events.DispatchID) (answered bool) {
	w.t.Helper()
	request, err := events.EncodeValue(dispatcher.RedriveRequest{Actor: "operator", DispatchID: dispatch, HookID: hookID})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.eventually(ended, func() string {
		answer, err := w.nc.Request(streams.ServiceSubject(streams.RedriveService), request, askAgain)
		switch {
		case err != nil:
			return "the redrive is not answered: " + err.Error()
		case answer.Header.Get("Nats-Service-Error-Code") == "500":
			return "the redrive is answered with " + answer.Header.Get("Nats-Service-Error")
		}
		return ""
	})
}
