package natsconn_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/afterwrite/afterwrite/internal/natsconn"
	"github.com/afterwrite/afterwrite/internal/natsembed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder dials, and remembers where.
type recorder struct {
	mu     sync.Mutex
	dialed []string
}

func (r *recorder) Dial(network, address string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialed = append(r.dialed, address)
	return net.Dial(network, address)
}

func TestEveryConnectionIsMadeByTheDialer(t *testing.T) {
	server := natsembed.StartTest(t)
	var dialer recorder
	nc, err := natsconn.Connect(natsconn.Options{Flags: natsconn.Flags{URL: server.ClientURL()}, Name: "test", Dialer: &dialer})
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if want := strings.TrimPrefix(server.ClientURL(), "nats://"); len(dialer.dialed) != 1 || dialer.dialed[0] != want {
		t.Errorf("dialed %v, want %s", dialer.dialed, want)
	}
}

func TestFlagsThatContradictEachOtherAreAllNamed(t *testing.T) {
	_, err := natsconn.Connect(natsconn.Options{Flags: natsconn.Flags{Creds: "a", NKey: "b", Cert: "c"}})
	want := "--nats-cert and --nats-key go together\n--nats-creds and --nats-nkey exclude each other"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestABrokerThatIsNotThereIsNamedWithoutItsPassword(t *testing.T) {
	_, err := natsconn.Connect(natsconn.Options{Flags: natsconn.Flags{URL: "tls://someone:secret@127.0.0.1:1,a:secret@127.0.0.1:2,127.0.0.1:3"}})
	const want = "connect to the broker at tls://xxxxx@127.0.0.1:1,nats://xxxxx@127.0.0.1:2,127.0.0.1:3: "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestAnAddressThatCannotBeReadIsNamedWithoutItsPassword(t *testing.T) {
	for _, address := range []string{"nats://someone:secret@127.0.0.1:1/%zz", "nats://someone:sec ret@127.0.0.1"} {
		_, err := natsconn.Connect(natsconn.Options{Flags: natsconn.Flags{URL: address}})
		if err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("got %v", err)
		}
	}
}
