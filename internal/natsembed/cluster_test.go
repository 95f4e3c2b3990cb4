package natsembed_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/afterwrite/afterwrite/internal/natsembed"
)

func TestAReplicatedStreamOutlivesItsLeader(t *testing.T) {
	ctx := withTimeout(t)
	cluster := natsembed.StartCluster(t, 3)
	js := connect(t, cluster.ClientURL())
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	publish := func(what string, want uint64) {
		t.Helper()
		ack, err := js.Publish(ctx, "s", []byte(what), jetstream.WithRetryAttempts(1000), jetstream.WithRetryWait(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if ack.Sequence != want {
			t.Fatalf("%s was stored as %d, want %d", what, ack.Sequence, want)
		}
	}
	publish("with all nodes", 1)

	first := cluster.StreamLeader("S")
	first.Isolate()
	// Nothing can be acknowledged by the isolated node, so clients of another are the ones that see the rest.
	var reachable *natsembed.Node
	for _, node := range cluster.Nodes() {
		if node != first {
			reachable = node
		}
	}
	js = connect(t, reachable.ClientURL())
	publish("while its leader is isolated", 2)
	if second := cluster.StreamLeader("S"); second == first {
		t.Errorf("%s is isolated and still preferred as the leader", first.Name())
	}
	first.Rejoin()
	cluster.AwaitCurrent("S")

	first.Stop()
	publish("while a node is down", 3)
	first.Start()
	cluster.AwaitCurrent("S")
	publish("with all nodes again", 4)
}
