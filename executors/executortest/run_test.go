package executortest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/executors/executortest"
	"github.com/afterwrite/afterwrite/internal/natsembed"
)

// ledger is a sink that books under an idempotency key.
type ledger struct {
	mu      sync.Mutex
	entries map[events.IntentID]int
}

// fault is what is wrong with the executor that is judged.
type fault string

const (
	faultNone     fault = ""
	faultDoubles  fault = "doubles"  // books again for a key it has booked for
	faultDeaf     fault = "deaf"     // does not listen to its context
	faultFickle   fault = "fickle"   // gives another result each time
	faultIdle     fault = "idle"     // gives a result and books nothing
	faultBabbling fault = "babbling" // gives a result that may not be stored
)

type booking struct {
	*ledger
	fault fault
}

func (b booking) Execute(ctx context.Context, intent *events.Intent, _ executors.Permit) (*events.Packet, error) {
	if ctx.Err() != nil && b.fault == faultDeaf {
		select {}
	}
	if ctx.Err() != nil && b.fault != faultIdle {
		return nil, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != faultIdle && (b.entries[intent.IntentID] == 0 || b.fault == faultDoubles) {
		b.entries[intent.IntentID]++
	}
	text := "booked"
	if b.fault == faultFickle {
		b.entries["calls"]++
		text = fmt.Sprintf("booked_%d", b.entries["calls"])
	}
	if b.fault == faultBabbling {
		text = "booked at https://example.org/x"
	}
	return executors.PacketOf("booking_v0", map[string]string{"text": text})
}

func subject(t *testing.T, attempts int, f fault) executortest.Subject {
	sink := &ledger{entries: map[events.IntentID]int{}}
	return executortest.Subject{
		URL:   natsembed.StartTest(t).ClientURL(),
		Grant: executors.Grant{IntentKind: "books.entry", Ceilings: events.IntentBudget{MaxAttempts: 3, MaxResultBytes: 1024}},
		New:   func() executors.Executor { return booking{sink, f} },
		Intent: func(n int) *events.Intent {
			intent := &events.Intent{
				Budget: events.IntentBudget{MaxAttempts: attempts, MaxResultBytes: 1024}, CapabilityID: "books", FailurePolicy: events.Isolate,
				HookID: "books.keeper", IntentKind: "books.entry", Operation: "book", Payload: jsontext.Value(fmt.Sprintf(`{"n":%d}`, n)),
				PolicyVersion: "v0", RequestedWriteScope: []string{}, SchemaVersion: events.IntentSchema,
				SourceDispatchID: "pwh_sha256_" + events.SHA256(nil),
			}
			intent.IntentID = events.IntentIdentity(intent.SourceDispatchID, intent.IntentKind, intent.PolicyVersion, intent.Payload)
			return intent
		},
		Effects: func(key events.IntentID) int {
			sink.mu.Lock()
			defer sink.mu.Unlock()
			return sink.entries[key]
		},
	}
}

func TestTheSuiteAcceptsAnExecutorThatActsOncePerKey(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d attempts", attempts), func(t *testing.T) { executortest.Run(t, subject(t, attempts, faultNone)) })
	}
}

const faultVariable = "EXECUTORTEST_FAULT"

// TestFaulty fails on purpose, and is run by the test below only.
func TestFaulty(t *testing.T) {
	f, ok := os.LookupEnv(faultVariable)
	if !ok {
		return
	}
	executortest.Run(t, subject(t, 3, fault(f)))
}

func TestTheSuiteCatchesEveryFault(t *testing.T) {
	for f, check := range map[fault]string{
		faultDoubles:  "the_same_intent_twice_is_one_effect",
		faultDeaf:     "the_deadline_is_honoured",
		faultFickle:   "the_same_intent_twice_is_one_effect",
		faultIdle:     "an_admitted_intent_has_one_effect",
		faultBabbling: "an_admitted_intent_has_one_effect_and_a_result_that_may_be_stored",
	} {
		t.Run(string(f), func(t *testing.T) {
			command := exec.Command(os.Args[0], "-test.run=^TestFaulty$", "-test.v")
			command.Env = append(os.Environ(), faultVariable+"="+string(f))
			out, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestFaulty/"+check) {
				t.Errorf("%v; want a failure of %s in:\n%s", err, check, out)
			}
		})
	}
}
