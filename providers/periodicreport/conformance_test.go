package periodicreport_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/providers/providertest"
	"github.com/afterwrite/afterwrite/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	registration, err := periodicreport.Registration()
	if err != nil {
		t.Fatal(err)
	}
	all := inputs(t)
	var ordered []*events.HookInput
	for _, receiptID := range slices.Sorted(maps.Keys(all)) {
		ordered = append(ordered, all[receiptID])
	}
	var requests [][]byte
	for _, ex := range examples(t) {
		requests = append(requests, evaluation(t, ex.Request.EvaluatedAt, ex.Request.Policy, ex.Request.State, ex.Request.IntentsPayloads...))
	}
	var file struct {
		PayloadSchemas map[string]json.RawMessage `json:"payload_schemas"`
	}
	unmarshal(t, periodicreport.HookFile, &file)

	providertest.Run(t, natsembed.StartTest(t).ClientURL(), providertest.Provider{
		Start: start,
		Hook: providertest.Hook{
			Registration: registration,
			PayloadSchemas: map[events.IntentKind]*events.PayloadSchema{
				periodicreport.IntentKind: compile(t, periodicreport.IntentKind, file.PayloadSchemas[periodicreport.IntentKind]),
			},
			Inputs: ordered,
		},
		Services: []providertest.Service{{
			Name:     periodicreport.ServiceName,
			Returns:  compile(t, periodicreport.ServiceName, periodicreport.ReturnSchema),
			Payloads: requests,
		}},
	})
}

// start serves the capability as its command does, over a connection of its own.
func start(tb testing.TB, url string) (stop func()) {
	tb.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		tb.Fatal(err)
	}
	capability, err := periodicreport.Provider()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- providers.Serve(ctx, nc, periodicreport.CapabilityID, capability) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("serve: %v", err)
		}
		nc.Close()
	}
}

func TestTheServedResultsHaveTheGoldenDigests(t *testing.T) {
	url := natsembed.StartTest(t).ClientURL()
	t.Cleanup(start(t, url))
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)

	var golden identities
	read(t, "identities.json", &golden)
	all := inputs(t)
	for _, v := range golden.Vectors {
		input := marshal(t, all[v.ReceiptID])
		if got := events.DigestOf(input); got != v.InputDigest {
			t.Fatalf("%s: the test's input has the digest %s, want %s", v.ReceiptID, got, v.InputDigest)
		}
		header := events.NewEnvelope(v.DispatchID, "test", events.HookInputSchema, events.NewTimestamp(time.Now())).Header()
		reply := request(t, nc, &nats.Msg{Subject: streams.CallSubject(periodicreport.HookID), Header: nats.Header(header), Data: input})
		if got := events.DigestOf(reply); got != v.ResultDigest {
			t.Errorf("%s: result digest %s, want %s: %s", v.ReceiptID, got, v.ResultDigest, reply)
		}
		if v.Status == "proposed" {
			result, err := events.Decode[events.HookResult](reply)
			if err != nil {
				t.Fatal(err)
			}
			if got := result.Intents[0].IntentID; got != v.IntentID {
				t.Errorf("%s: intent id %s, want %s", v.ReceiptID, got, v.IntentID)
			}
		}
	}
}

// request waits for the provider to have subscribed: it starts on its own.
func request(t *testing.T, nc *nats.Conn, msg *nats.Msg) []byte {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		reply, err := nc.RequestMsg(msg, time.Second)
		switch {
		case err == nil:
			return reply.Data
		case !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline):
			t.Fatal(err)
		}
	}
}

func compile(t *testing.T, name string, schema []byte) *events.PayloadSchema {
	t.Helper()
	compiled, err := events.CompilePayloadSchema(name, schema)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}
