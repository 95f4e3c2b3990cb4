package executors_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// An executor is one method. It admits and claims nothing itself: when it is called, the intent was admitted against the
// grant, claimed, and written down as called.
func ExampleProcess() {
	url, stop := exampleBroker()
	defer stop()

	recount := executors.Func(func(_ context.Context, intent *events.Intent, permit executors.Permit) (*events.Packet, error) {
		// Whoever acts must act once for the intent's id, within permit.Accepted.
		fmt.Println("recounting", string(intent.Payload), "within", permit.Accepted.WriteScope)
		return executors.PacketOf("inventory_count_v0", map[string]any{"boxes": 12})
	})
	ctx, done := context.WithCancel(context.Background())
	process, err := executors.New(executors.Options{
		Executor: "shelf_clerk",
		URL:      url,
		Grants: []executors.Grant{{
			IntentKind: "inventory.recount_shelf",
			WriteScope: []string{"inventory.counts"},
		}},
		Executors: map[events.IntentKind]executors.Executor{"inventory.recount_shelf": recount},
		Observe: func(e *events.Execution) {
			fmt.Println(e.Status)
			if e.Status.Terminal() {
				fmt.Println(e.Result.SchemaVersion, string(e.Result.Data))
				done() // a real one runs until it is told to stop
			}
		},
	})
	if err != nil {
		log.Panic(err)
	}
	go func() {
		<-process.Ready()
		propose(url) // which is a dispatcher's to do
	}()
	if err := process.Run(ctx); err != nil {
		log.Panic(err)
	}
	// Output:
	// claimed
	// called
	// recounting {"shelf":"a7"} within [inventory.counts]
	// completed
	// inventory_count_v0 {"boxes":12}
}

// exampleBroker stands in for a NATS server with the streams applied.
func exampleBroker() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "afterwrite-example-")
	if err != nil {
		log.Panic(err)
	}
	server, err := natsembed.Start(natsembed.Options{StoreDir: dir, MaxStoreBytes: 64 << 30})
	if err != nil {
		log.Panic(err)
	}
	onBroker(server.ClientURL(), func(js jetstream.JetStream) error {
		_, err := streams.Apply(context.Background(), js, streams.Default(streams.Settings{}))
		return err
	})
	return server.ClientURL(), func() {
		server.Shutdown()
		if err := os.RemoveAll(dir); err != nil {
			log.Panic(err)
		}
	}
}

func propose(url string) {
	intent := &events.Intent{
		SchemaVersion: events.IntentSchema, CapabilityID: "inventory", HookID: "inventory.watch", IntentKind: "inventory.recount_shelf",
		Operation: "recount", PolicyVersion: "v0", Payload: jsontext.Value(`{"shelf":"a7"}`), FailurePolicy: events.Isolate,
		Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, RequestedWriteScope: []string{"inventory.counts"},
		SourceDispatchID: "pwh_sha256_" + events.SHA256([]byte("example")),
	}
	intent.IntentID = events.IntentIdentity(intent.SourceDispatchID, intent.IntentKind, intent.PolicyVersion, intent.Payload)
	data, err := events.Encode(intent)
	if err != nil {
		log.Panic(err)
	}
	envelope := events.NewEnvelope(intent.IntentID, "afterwrite/dispatcher", events.IntentSchema, events.NewTimestamp(time.Now()))
	onBroker(url, func(js jetstream.JetStream) error {
		_, err := js.PublishMsg(context.Background(), &nats.Msg{
			Subject: streams.IntentSubject(intent.IntentID, intent.IntentKind), Header: nats.Header(envelope.Header()), Data: data,
		})
		return err
	})
}

func onBroker(url string, use func(jetstream.JetStream) error) {
	nc, err := nats.Connect(url)
	if err != nil {
		log.Panic(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		err = use(js)
	}
	if err != nil {
		log.Panic(err)
	}
}
