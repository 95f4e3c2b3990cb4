package archtest

import "testing"

// rule forbids the packages of one set to reach those of another: through any chain of imports, or directly only.
type rule struct {
	from, to set
	direct   bool
	because  string
}

const (
	server = "github.com/nats-io/nats-server/v2/..."
	cores  = "./dispatcher/core/... ./executors/core/..."
)

var rules = []rule{
	{
		from: "./events/...", to: "./... !./events/...",
		because: "the contract stands on nothing of ours, so that anybody can take it alone",
	},
	{
		from: "./streams/...", to: "./... !./streams/... !./events/...",
		because: "the topology stands on the contract only",
	},
	{
		from: "./dispatcher/... ./cmd/dispatcher/...", to: "./providers/... ./executors/...",
		because: "the dispatcher never knows a capability or an executor",
	},
	{
		from: "./providers/... ./cmd/provider-periodic-report/...", to: "./dispatcher/... ./executors/...",
		because: "a provider holds no authority: it answers, and neither decides nor executes",
	},
	{
		from: "./executors/... ./cmd/executor/...", to: "./dispatcher/... ./providers/...",
		because: "an executor has its own admission and knows no capability",
	},
	{
		from: "./providers/... !./providers/periodicreport/...", to: "./providers/periodicreport/...",
		because: "the SDK knows no capability",
	},
	{
		from: "./events/... ./streams/... ./dispatcher/... ./providers/... ./executors/... ./internal/...", to: "./cmd/...",
		because: "a command is flags, options and Run, and nothing to build on",
	},
	{
		from: "./... !./internal/natsembed/...", to: server, direct: true,
		because: "only internal/natsembed links the broker's server",
	},
	{
		from: "./... !./internal/... !./cmd/hookctl/...", to: server,
		because: "hookctl is the only binary with an embedded server",
	},
	{
		from: "./providers/... ./cmd/provider-periodic-report/... !./providers/providertest/...",
		to:   "github.com/nats-io/nats.go/jetstream/...", direct: true,
		because: "a provider publishes only responses and needs no JetStream access",
	},
	{
		from: cores,
		to: "... !./events/... !bytes !cmp !encoding/hex !errors !fmt !hash/fnv !iter !maps !math !math/bits !slices " +
			"!strconv !strings !time !unicode !unicode/utf8",
		direct:  true,
		because: "a core decides and does nothing: the contract and a few pure packages are all it may import",
	},
	{
		from: "./dispatcher/lane/...", to: "./streams/... github.com/nats-io/...",
		because: "a lane is fed inputs and emits effects, so that a simulated broker can drive it through any history",
	},
	{
		from: "./dispatcher/lane/...", to: "context crypto/rand log/... math/rand/... net net/http/... os/... sync/... go.uber.org/...",
		direct:  true,
		because: "one loop owns a lane and nothing in it blocks, so it needs no lock, context, log or I/O",
	},
	{
		from: "./events/...",
		to: "context crypto/rand io/ioutil log/... math/rand/... net net/http/... os/... runtime/... syscall " +
			"go.uber.org/... github.com/nats-io/...",
		direct:  true,
		because: "the cores stand on the contract, so it does no I/O and knows neither the clock, chance nor the broker",
	},
	{
		from: "./... !./internal/... !./cmd/hookctl/... !./providers/providertest/... !./executors/executortest/...", to: "testing/...",
		because: "what is shipped carries no test support",
	},
}

func TestNoPackageReachesWhatItMayNot(t *testing.T) {
	g := ourGraph(t)
	for _, r := range rules {
		for _, violation := range g.violations(r) {
			t.Error(violation)
		}
	}
}

// Some of these packages may not exist yet: the rules wait for them.
func TestEveryRuleForbidsWhatItIsThereFor(t *testing.T) {
	g := graph{
		"./internal/natsembed":  {"github.com/nats-io/nats-server/v2/server", "testing"},
		"./internal/testbroker": {"./internal/natsembed"},
	}
	for _, test := range []struct {
		from, imported string
		allowed        bool
	}{
		{from: "./events", imported: "./streams"},
		{from: "./events", imported: "./internal/observability"},
		{from: "./events", imported: "os"},
		{from: "./events", imported: "math/rand/v2"},
		{from: "./events", imported: "net/url", allowed: true},
		{from: "./streams", imported: "./dispatcher"},
		{from: "./streams", imported: "./internal/testbroker"},
		{from: "./streams", imported: "./events", allowed: true},
		{from: "./dispatcher/registry", imported: "./providers"},
		{from: "./dispatcher", imported: "./executors/core"},
		{from: "./dispatcher", imported: "./streams", allowed: true},
		{from: "./dispatcher", imported: "./cmd/dispatcher"},
		{from: "./dispatcher", imported: "testing/synctest"},
		{from: "./cmd/dispatcher", imported: "./providers/periodicreport"},
		{from: "./cmd/dispatcher", imported: "./internal/testbroker"},
		{from: "./providers", imported: "./dispatcher/core"},
		{from: "./providers", imported: "./providers/periodicreport"},
		{from: "./providers", imported: "github.com/nats-io/nats.go/jetstream"},
		{from: "./providers", imported: "github.com/nats-io/nats.go/micro", allowed: true},
		{from: "./providers/periodicreport", imported: "./executors"},
		{from: "./cmd/provider-periodic-report", imported: "./internal/natsembed"},
		{from: "./executors", imported: "./providers"},
		{from: "./executors/core", imported: "./dispatcher/core"},
		{from: "./cmd/executor", imported: "./providers/periodicreport"},
		{from: "./cmd/executor", imported: "github.com/nats-io/nats-server/v2/server"},
		{from: "./cmd/hookctl", imported: "./internal/natsembed", allowed: true},
		{from: "./cmd/hookctl", imported: "./dispatcher", allowed: true},
		{from: "./cmd/hookctl", imported: "github.com/nats-io/nats-server/v2/server"},
		{from: "./dispatcher/core", imported: "context"},
		{from: "./dispatcher/core", imported: "crypto/rand"},
		{from: "./dispatcher/core", imported: "io"},
		{from: "./dispatcher/core", imported: "sync"},
		{from: "./dispatcher/core", imported: "./streams"},
		{from: "./dispatcher/core", imported: "github.com/nats-io/nats.go"},
		{from: "./dispatcher/core", imported: "hash/fnv", allowed: true},
		{from: "./dispatcher/lane", imported: "./streams"},
		{from: "./dispatcher/lane", imported: "github.com/nats-io/nats.go/jetstream"},
		{from: "./dispatcher/lane", imported: "sync/atomic"},
		{from: "./dispatcher/lane", imported: "./dispatcher/core", allowed: true},
		{from: "./executors/core", imported: "log/slog"},
		{from: "./executors/core", imported: "time", allowed: true},
		{from: "./executors/executortest", imported: "testing", allowed: true},
	} {
		g[test.from] = []string{test.imported}
		broken := 0
		for _, r := range rules {
			if r.from.contains(test.from) && g.chain(test.from, r) != nil {
				broken++
			}
		}
		if (broken == 0) != test.allowed {
			t.Errorf("%s imports %s: %d rules forbid it, want allowed = %t", test.from, test.imported, broken, test.allowed)
		}
		delete(g, test.from)
	}
}
