package executors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/events"
)

func TestAGrantsFileIsReadWhole(t *testing.T) {
	data, err := os.ReadFile("testdata/grants/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseGrants(data)
	if err != nil {
		t.Fatal(err)
	}
	want := &GrantsFile{Executor: "report_evaluator", Grants: []Grant{
		{
			IntentKind: "periodic_report.trigger_evaluation", WriteScope: []string{"reports.draft"},
			Ceilings: events.IntentBudget{MaxAttempts: 3, MaxResultBytes: 16384}, Narrow: events.Allowance{Budget: events.IntentBudget{MaxAttempts: 1}, WriteScope: []string{}},
			MaxAge: 24 * time.Hour, From: "2026-06-23T17:13:00Z", Concurrency: 4, Timeout: 5 * time.Second,
			Service: "periodic_report.evaluate_trigger", Policy: jsontext.Value(`{"minimum_interval_seconds":0,"trigger_kinds":["manual"]}`),
			StateKey: "goal_id", EvaluatedAt: "observed_at",
		},
		{
			IntentKind: "periodic_report.archive", Off: true, Manual: true, Service: "archive.store",
			Ceilings: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 65536}, From: "new", Concurrency: 16, Timeout: 10 * time.Second,
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
}

// The first line of each file is a comment; the lines of it that begin with "# want: " are the problems, all of them.
func TestAGrantsFileIsRefusedWithEveryProblemAtOnce(t *testing.T) {
	files, err := filepath.Glob("testdata/grants/bad-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(data)) {
			if problem, ok := strings.CutPrefix(line, "# want: "); ok {
				want = append(want, strings.TrimSpace(problem))
			}
		}
		_, err = ParseGrants(data)
		if err == nil {
			t.Errorf("%s: accepted", file)
			continue
		}
		if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", file, diff)
		}
	}
}

func TestOptionsAreRefusedWithEveryProblemAtOnce(t *testing.T) {
	_, err := New(Options{
		Executor: "Report", HandBack: time.Millisecond, AckWait: time.Millisecond, DrainTimeout: -1, MaxAckPending: -1,
		Grants:    []Grant{{IntentKind: "a.b"}, {IntentKind: "a.b", Service: "s", MaxAge: -1}},
		Executors: map[events.IntentKind]Executor{"a.c": newEffects()},
	})
	want := []string{
		"executor must be a name", "drain_timeout must be positive", "ack_wait must be at least 100ms", "hand_back must be at least 50ms",
		"max_ack_pending must not be negative", "grants[0].service.name must name the service to call", "grants[1].max_age must not be negative",
		"grants[1].intent_kind must not repeat another grant's", "executors must be of a kind that has a grant: a.c",
	}
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAGrantsDigestCoversItsAuthorityAndNotHowItRuns(t *testing.T) {
	base := serviceGrant().WithDefaults()
	digest := func(change func(*Grant)) events.Digest {
		g := base
		change(&g)
		d, err := g.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := digest(func(*Grant) {})
	if !events.IsDigest(same) {
		t.Errorf("digest %q", same)
	}
	for name, change := range map[string]func(*Grant){
		"off": func(g *Grant) { g.Off = true }, "concurrency": func(g *Grant) { g.Concurrency = 1 }, "from": func(g *Grant) { g.From = "all" },
		"order of the scope":  func(g *Grant) { g.WriteScope = []string{"reports.index", "reports.draft"} },
		"order of the policy": func(g *Grant) { g.Policy = jsontext.Value(`{"a":1,"b":2}`) },
	} {
		if digest(change) != same {
			t.Errorf("%s changes the digest", name)
		}
	}
	for name, change := range map[string]func(*Grant){
		"scope": func(g *Grant) { g.WriteScope = nil }, "manual": func(g *Grant) { g.Manual = true }, "policy": func(g *Grant) { g.Policy = nil },
		"ceilings": func(g *Grant) { g.Ceilings.MaxAttempts = 1 }, "service": func(g *Grant) { g.Service = "other" },
		"age": func(g *Grant) { g.MaxAge = time.Hour }, "narrow": func(g *Grant) { g.Narrow.Budget.MaxAttempts = 1 },
		"narrow scope": func(g *Grant) { g.Narrow.WriteScope = []string{} },
	} {
		if digest(change) == same {
			t.Errorf("%s does not change the digest", name)
		}
	}
}

func TestAProcessSaysWhichStreamIsMissing(t *testing.T) {
	b := startBroker(t)
	if err := b.js.DeleteStream(b.ctx, "PWH_EXECUTIONS"); err != nil {
		t.Fatal(err)
	}
	p, err := New(with(b.options(testGrant(testKind)), newEffects()))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(b.ctx); err == nil || err.Error() != "executors: a stream is missing: PWH_EXECUTIONS" {
		t.Errorf("Run: %v", err)
	}
}

func TestAnExecutionsStreamThatIsCreatedAnewEndsTheProcess(t *testing.T) {
	b := startBroker(t)
	opts := with(b.options(testGrant(testKind)), newEffects())
	opts.watch = 10 * time.Millisecond
	p := b.start(opts)
	if err := b.js.DeleteStream(b.ctx, "PWH_EXECUTIONS"); err != nil {
		t.Fatal(err)
	}
	if err := <-p.done; !errors.Is(err, ErrExecutionsLost) {
		t.Errorf("Run: %v, want ErrExecutionsLost", err)
	}
	close(p.done)
}

func FuzzParseGrants(f *testing.F) {
	files, err := filepath.Glob("testdata/grants/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseGrants(data)
		if err != nil {
			return
		}
		if _, err := New(Options{Executor: file.Executor, Grants: file.Grants}); err != nil {
			t.Errorf("a file that is accepted makes no process: %v", err)
		}
	})
}
