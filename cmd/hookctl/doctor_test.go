package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// told is what the doctor told.
type told struct {
	findings []finding
	checks   []result
	met      bool
}

// ask has the doctor examine, by a clock that may be wrong.
func ask(t *testing.T, url string, now func() time.Time, args ...string) told {
	t.Helper()
	var command doctorCommand
	parser, err := kong.New(&command, flags.StreamsVars())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"--json", "--nats-url", url}, args...)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = command.examine(t.Context(), &out, now)
	if err != nil && !errors.Is(err, errUnmet) {
		t.Fatal(err)
	}
	seen := told{met: err == nil}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, `{"checks":`) {
			var last struct {
				Checks []result `json:"checks"`
			}
			decode(t, line, &last)
			seen.checks = last.Checks
			continue
		}
		var f finding
		decode(t, line, &f)
		seen.findings = append(seen.findings, f)
	}
	return seen
}

func decode(t *testing.T, line string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), into); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

// hold holds what is found by one check to sentences, each a regular expression for one finding.
func (s told) hold(t *testing.T, by check, sentences ...string) {
	t.Helper()
	var found []finding
	for _, f := range s.findings {
		if f.Check == by {
			found = append(found, f)
		}
	}
	for i, f := range found {
		if f.Why == "" || f.Remedy == "" {
			t.Errorf("%q says not why, or not what to do", f.What)
		}
		if i < len(sentences) && !regexp.MustCompile("^(?:"+sentences[i]+")$").MatchString(f.What) {
			t.Errorf("found %q, want %q", f.What, sentences[i])
		}
	}
	if len(found) != len(sentences) {
		t.Errorf("%s: found %d, want %d: %v", by, len(found), len(sentences), found)
	}
	if s.met == (len(s.findings) > 0) {
		t.Errorf("exit as expected is %v with %d findings", s.met, len(s.findings))
	}
}

// applied is a broker with the streams and nobody who uses them.
func applied(t *testing.T, settings streams.Settings) (string, jetstream.JetStream) {
	t.Helper()
	url := natsembed.StartTest(t).ClientURL()
	js := connected(t, url)
	if _, err := streams.Apply(t.Context(), js, streams.Default(settings)); err != nil {
		t.Fatal(err)
	}
	return url, js
}

func connected(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// installed are the files of one hook, in a folder of their own.
func installed(t *testing.T) (hook, profiles, grants string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hook.yaml": `
registration:
  schema_version: loopx_post_writeback_capability_hook_registration_v0
  hook_id: inventory.recount
  capability_id: inventory
  phase: post_writeback
  event_kinds: [todo_completed]
  intent_kinds: [inventory.recount_shelf]
  requested_read_scope: [settlement_identity]
  budget: {max_invocations_per_dispatch: 3, max_intents_per_dispatch: 1, max_result_bytes: 4096, timeout_ms: 500}
  failure_policy: isolate
payload_schemas:
  inventory.recount_shelf: {type: object}
`,
		"profiles.yaml": "profiles: {default: {enabled: true, hooks: [inventory.recount]}}",
		"grants.yaml": `
executor: stock_keeper
grants:
  - {intent_kind: inventory.recount_shelf, service: {name: inventory.count}}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "hook.yaml"), filepath.Join(dir, "profiles.yaml"), filepath.Join(dir, "grants.yaml")
}

func TestTheDoctorFindsNothingWrongWhereNothingIs(t *testing.T) {
	seen := ask(t, tourBroker(t, true), time.Now)
	if len(seen.findings) > 0 || !seen.met {
		t.Errorf("found %v", seen.findings)
	}
	if len(seen.checks) != len(checks) {
		t.Errorf("%d checks were made, want %d", len(seen.checks), len(checks))
	}
	for _, c := range seen.checks {
		if c.NotAsked != "" {
			t.Errorf("%s was not asked: %s", c.Check, c.NotAsked)
		}
	}
}

func TestTheDoctorFindsSettingsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	url := natsembed.StartTest(t).ClientURL()
	hook, profiles, _ := installed(t)
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte("profiles: {default: {enabled: true, hooks: [nobody.home]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("registration: {hook_id: inventory.recount}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"only hooks":         {[]string{"--hooks", hook}, []string{`--profiles must be given too\.`}},
		"a file not there":   {[]string{"--hooks", hook + ".not", "--profiles", profiles}, []string{`.*no such file.*\.`}},
		"an unknown hook":    {[]string{"--hooks", hook, "--profiles", other}, []string{`Nothing would start: .*names the hook "nobody\.home", which no file registers\.`}},
		"a broken hook":      {[]string{"--hooks", broken, "--profiles", profiles}, []string{`Rejected: .*`}},
		"ages that disagree": {[]string{"--hooks", hook, "--profiles", profiles, "--journal-age", "72h"}, []string{`.*--journal-age must be at least --receipts-age and the longest retry of a profile together, .*\.`}},
	} {
		t.Run(name, func(t *testing.T) { ask(t, url, time.Now, c.args...).hold(t, checkSettings, c.want...) })
	}
}

func TestTheDoctorFindsABrokerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	broker := natsembed.StartTest(t).ClientURL()
	for name, c := range map[string]struct {
		url  string
		want string
	}{
		"not there": {"nats://127.0.0.1:1", `connect to the broker at nats://127\.0\.0\.1:1: .*no servers available.*\.`},
		"refuses the credentials": {
			interposer{asked: func(operation, subject string) (string, string) {
				if operation == "CONNECT" {
					return subject, "Authorization Violation"
				}
				return subject, ""
			}}.start(t, broker),
			`connect to the broker at .*: nats: Authorization Violation\.`,
		},
		"too old": {
			interposer{told: func(line string) string { return strings.Replace(line, `"version":"2.`, `"version":"1.`, 1) }}.start(t, broker),
			`The server is 1\.[0-9.]+; it must be at least 2\.12\.0\.`,
		},
		"without JetStream": {
			interposer{asked: func(_, subject string) (string, string) {
				return strings.Replace(subject, "$JS.API.INFO", "nobody.home", 1), ""
			}}.start(t, broker),
			`JetStream is not enabled, for the server or for this account\.`,
		},
	} {
		t.Run(name, func(t *testing.T) { ask(t, c.url, time.Now).hold(t, checkBroker, c.want) })
	}
}

func TestTheDoctorFindsWhatIsNotPermitted(t *testing.T) {
	t.Parallel()
	url, _ := applied(t, streams.Settings{Hooks: []events.HookID{"inventory.recount"}})
	for subject, purpose := range map[string]string{
		"$JS.API.INFO":                      "look at the account",
		"$JS.API.STREAM.INFO.PWH_JOURNAL":   "look at PWH_JOURNAL",
		"$JS.API.CONSUMER.LIST.PWH_RETRIES": "list the consumers of PWH_RETRIES",
		"$JS.API.DIRECT.GET.PWH_JOURNAL":    "read a message of PWH_JOURNAL",
		"$SRV.STATS":                        "ask who answers for hooks and services",
		"pwh.service.dispatcher.redrive":    "have dispatches redriven",
	} {
		t.Run(purpose, func(t *testing.T) {
			t.Parallel()
			seen := ask(t, forbidding(subject).start(t, url), time.Now)
			seen.hold(t, checkPermissions,
				regexp.QuoteMeta("These credentials may not publish to "+subject+", which it takes to "+purpose+"."))
		})
	}
	t.Run("what cannot be asked is not taken for wrong", func(t *testing.T) {
		t.Parallel()
		seen := ask(t, forbidding("$SRV.STATS").start(t, url), time.Now)
		seen.hold(t, checkDispatchers)
		seen.hold(t, checkProviders)
	})
}

func TestTheDoctorFindsStreamsThatAreNotAsTheyShouldBe(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		ask(t, natsembed.StartTest(t).ClientURL(), time.Now).hold(t, checkTopology,
			`The stream PWH_RECEIPTS is missing\.`, `The stream PWH_JOURNAL is missing\.`, `The stream PWH_RETRIES is missing\.`,
			`The stream PWH_INTENTS is missing\.`, `The stream PWH_EXECUTIONS is missing\.`, `The stream PWH_STATE is missing\.`)
	})
	url, _ := applied(t, streams.Settings{})
	hook, profiles, _ := installed(t)
	t.Run("different", func(t *testing.T) {
		ask(t, url, time.Now, "--hooks", hook, "--profiles", profiles, "--journal-size", "8GiB").hold(t, checkTopology,
			`The stream PWH_JOURNAL: max_bytes must be 8589934592, it is 4294967296\.`,
			`The stream PWH_RETRIES consumer inventory-recount is missing\.`)
	})
	t.Run("not told", func(t *testing.T) { ask(t, url, time.Now, "--journal-size", "8GiB").hold(t, checkTopology) })
}

func TestTheDoctorFindsAClockThatIsWrong(t *testing.T) {
	t.Parallel()
	url, _ := applied(t, streams.Settings{})
	for name, c := range map[string]struct {
		off  time.Duration
		want []string
	}{
		"the broker's behind": {time.Minute, []string{`The broker's clock is (59\.\d+s|1m0s) behind this machine's; 5s is allowed\.`}},
		"the broker's ahead":  {-time.Minute, []string{`The broker's clock is (59\.\d+s|1m0s) ahead of this machine's; 5s is allowed\.`}},
		"neither":             {0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, url, func() time.Time { return time.Now().Add(c.off) }).hold(t, checkClock, c.want...)
		})
	}
}

// serve adds a micro service that answers on a subject.
func serve(t *testing.T, nc *nats.Conn, version, subject string) {
	t.Helper()
	service, err := micro.AddService(nc, micro.Config{Name: "one", Version: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Stop() }) // the connection goes with it
	answer := micro.HandlerFunc(func(r micro.Request) { _ = r.Error("400", "no", nil) })
	if err := service.AddEndpoint("one", answer, micro.WithEndpointSubject(subject)); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestTheDoctorFindsWhoIsNotThere(t *testing.T) {
	t.Parallel()
	url, js := applied(t, streams.Settings{Hooks: []events.HookID{"inventory.recount"}})
	hook, profiles, grants := installed(t)

	seen := ask(t, url, time.Now, "--hooks", hook, "--profiles", profiles, "--grants", grants)
	seen.hold(t, checkDispatchers, `No dispatcher is running\.`)
	seen.hold(t, checkProviders, `No provider answers for the hook inventory\.recount\.`,
		`Nobody answers for the service inventory\.count, which a grant names\.`)
	ask(t, url, time.Now).hold(t, checkProviders, `No provider answers for the hook inventory\.recount\.`)

	serve(t, js.Conn(), "1.0.0", streams.ServiceSubject(streams.RedriveService))
	serve(t, js.Conn(), "1.0.0", streams.CallSubject("inventory.recount"))
	seen = ask(t, url, time.Now)
	seen.hold(t, checkDispatchers)
	seen.hold(t, checkProviders)

	serve(t, js.Conn(), "1.1.0", streams.ServiceSubject(streams.RedriveService))
	ask(t, url, time.Now).hold(t, checkDispatchers, `Dispatchers of several versions are running: 1\.0\.0, 1\.1\.0\.`)
}

func TestTheDoctorFindsWakeUpsThatDidNotFire(t *testing.T) {
	t.Parallel()
	url, js := applied(t, streams.Settings{Hooks: []events.HookID{"inventory.recount"}})
	const dispatch = "pwh_sha256_0000000000000000000000000000000000000000000000000000000000000001"
	at := time.Now().Add(time.Hour)
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{
		Subject: streams.RetryAtSubject(dispatch, "inventory.recount"),
		Header:  nats.Header(streams.FirstScheduleHeader(dispatch, "inventory.recount", at)),
	}); err != nil {
		t.Fatal(err)
	}
	ask(t, url, time.Now).hold(t, checkWakeUps)
	ask(t, url, func() time.Time { return at.Add(time.Minute) }).hold(t, checkWakeUps)
	ask(t, url, func() time.Time { return at.Add(3 * time.Minute) }).hold(t, checkWakeUps,
		`1 wake-up of the hook inventory\.recount did not fire when due, more than 2m0s ago\.`)
}

func TestTheDoctorFindsAStreamThatIsNearlyFull(t *testing.T) {
	t.Parallel()
	url, js := applied(t, streams.Settings{JournalMaxBytes: 100_000})
	fill := func(size int) {
		t.Helper()
		subject := streams.RefusalSubject(events.SHA256([]byte("a registration")))
		if _, err := js.Publish(t.Context(), subject, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	fill(79_000)
	ask(t, url, time.Now).hold(t, checkSizes)
	fill(5_000)
	ask(t, url, time.Now).hold(t, checkSizes, `PWH_JOURNAL is 84 % full: 82\.\d KiB of 97\.7 KiB\.`)
}

func TestTheDoctorFindsWorkThatNobodyTakes(t *testing.T) {
	t.Parallel()
	url, js := applied(t, streams.Settings{ReceiptsAge: 8 * time.Second, DuplicateWindow: time.Second})
	publish := func(ctx context.Context) {
		t.Helper()
		if _, err := js.Publish(ctx, streams.ReceiptSubject(events.TodoCompleted), nil); err != nil {
			t.Fatal(err)
		}
	}
	publish(t.Context())
	ask(t, url, time.Now).hold(t, checkAges)
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		publish(deadline) // so that there is always one that is half as old as it gets
		if seen := ask(t, url, time.Now); seen.count(checkAges) > 0 {
			seen.hold(t, checkAges, `The oldest message that dispatcher has not settled has waited [4-7]s of the 8s that PWH_RECEIPTS keeps it\.`)
			return
		}
	}
}

func (s told) count(by check) (n int) {
	for _, f := range s.findings {
		if f.Check == by {
			n++
		}
	}
	return n
}

func TestTheDoctorTellsPeopleWhatIsWrongAndWhatToDo(t *testing.T) {
	var out, said bytes.Buffer
	code := run(t.Context(), []string{"doctor", "--nats-url", "nats://127.0.0.1:1"}, stdio{nil, &out, &said})
	if code != exitUnmet || said.Len() > 0 {
		t.Errorf("exit code %d, said %q", code, &said)
	}
	want := `CHECK        RESULT     SEEN
settings     ok         what is installed was not told: give --hooks and --profiles, and --grants
broker       1 finding
permissions  not asked  there is no broker to ask
topology     not asked  there is no broker to ask
clock        not asked  there is no broker to ask
dispatchers  not asked  there is no broker to ask
providers    not asked  there is no broker to ask
wake ups     not asked  there is no broker to ask
sizes        not asked  there is no broker to ask
ages         not asked  there is no broker to ask

what   connect to the broker at nats://127.0.0.1:1: nats: no servers available for connection.
why    Nothing works without the broker: receipts cannot be published, and nothing is dispatched.
to do  Start the broker, or correct --nats-url; look for a network policy in between.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
