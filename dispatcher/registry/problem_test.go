package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
)

// Each row changes one thing in a hook file that is otherwise good.
func TestWhatAHookFileSaysWrongCostsThatHookAlone(t *testing.T) {
	for _, test := range []struct {
		name   string
		edit   []string // old, new, … in the YAML file of the trigger
		hookID string   // as far as it can be read
		want   []string // after the file's name
	}{
		{
			"not YAML", []string{"phase: post_writeback", "phase: ["}, "",
			[]string{` must be YAML: line 7: did not find expected ',' or ']'`},
		},
		{
			"a key twice", []string{"phase: post_writeback", "phase: post_writeback\n  phase: post_writeback"}, trigger,
			[]string{` must be YAML: line 7: key "phase" already set in map`},
		},
		{
			"two documents", []string{"registration:\n", "---\n---\nregistration:\n"}, "",
			[]string{` must be a map of members`},
		},
		{
			"a document after the first", []string{"goal_id: {type: string}\n", "goal_id: {type: string}\n--- {a: b}\n"}, trigger,
			[]string{` must be one YAML document`},
		},
		{
			"content after the end", []string{"goal_id: {type: string}\n", "goal_id: {type: string}\n...\na: b\n"}, trigger,
			[]string{` must be one YAML document`},
		},
		{
			"a key that is a boolean", []string{"goal_id: {type: string}", "on: {type: string}"}, trigger,
			[]string{` must quote a key that YAML reads as a boolean, such as on or yes; write it as JSON if true or false is meant`},
		},
		{
			"unknown member", []string{"payload_schemas:", "payload_schema: {}\npayload_schemas:"}, trigger,
			[]string{`: payload_schema is not a member`},
		},
		{
			"no registration", []string{"registration:", "registrations:"}, "",
			[]string{`: registrations is not a member`},
		},
		{
			"unknown member of the registration", []string{"  phase: post_writeback", "  phase: post_writeback\n  retries: 3"}, trigger,
			[]string{`: registration must not have members that the document does not know`},
		},
		{
			"schema of another version", []string{"registration_v0", "registration_v1"}, trigger,
			[]string{`: registration.schema_version must be "loopx_post_writeback_capability_hook_registration_v0"`},
		},
		{
			"another phase", []string{"phase: post_writeback", "phase: pre_writeback"}, trigger,
			[]string{`: registration.phase must be "post_writeback"`},
		},
		{
			"another failure policy", []string{"failure_policy: isolate", "failure_policy: abort"}, trigger,
			[]string{`: registration.failure_policy must be "isolate"`},
		},
		{
			"hook id that is no name", []string{"hook_id: periodic_report.runtime_trigger", "hook_id: Periodic"}, "",
			[]string{`: registration.hook_id must be a name`},
		},
		{
			"hook id of another capability", []string{"capability_id: periodic_report", "capability_id: report"}, trigger,
			[]string{`: registration.hook_id must be the capability id, a dot and a name`},
		},
		{
			"hook id that is no string", []string{"hook_id: periodic_report.runtime_trigger", "hook_id: yes"}, "",
			[]string{`: registration.hook_id must be a string`},
		},
		{
			"unknown event kind", []string{"[todo_completed, replan_recorded]", "[todo_completed, todo_reopened]"}, trigger,
			[]string{`: registration.event_kinds[1] must be a known event kind`},
		},
		{
			"unknown read scope", []string{"[settlement_identity,", "[raw_transcript,"}, trigger,
			[]string{`: registration.requested_read_scope[0] must be a known read scope`},
		},
		{
			"no intent kind", []string{"intent_kinds: [periodic_report.trigger_evaluation]", "intent_kinds: []"}, trigger,
			[]string{`: registration.intent_kinds must hold 1 to 16 tokens`},
		},
		{
			"budget out of range", []string{"timeout_ms: 1000", "timeout_ms: 30001"}, trigger,
			[]string{`: registration.budget.timeout_ms must be from 1 to 30000 ms`},
		},
		{
			"number that is no integer", []string{"timeout_ms: 1000", "timeout_ms: 1.5"}, trigger,
			[]string{`: registration.budget.timeout_ms must be a plain integer within ±(2^53−1)`},
		},
		{
			"declared kind with no schema", []string{"intent_kinds: [periodic_report.trigger_evaluation]", "intent_kinds: [periodic_report.trigger_evaluation, periodic_report.digest]"}, trigger,
			[]string{`: payload_schemas.periodic_report.digest is missing, and the registration declares the intent kind`},
		},
		{
			"schema of an undeclared kind", []string{"  periodic_report.trigger_evaluation:\n", "  periodic_report.evaluation:\n"}, trigger,
			[]string{
				`: payload_schemas.periodic_report.evaluation is for an intent kind that the registration does not declare`,
				`: payload_schemas.periodic_report.trigger_evaluation is missing, and the registration declares the intent kind`,
			},
		},
		{
			"schema that is none", []string{"    type: object\n", "    type: thing\n"}, trigger,
			[]string{`: payload_schemas.periodic_report.trigger_evaluation must be a payload schema: it breaks the rules of JSON Schema at /type`},
		},
		{
			"limits out of range", []string{"payload_schemas:", "max_in_flight: 0\nbacklog_ceiling: 100000001\npayload_schemas:"}, trigger,
			[]string{
				`: backlog_ceiling must be from 1 to 100000000`,
				`: max_in_flight must be from 1 to 65536`,
			},
		},
		{
			"limit of the wrong type", []string{"payload_schemas:", "max_in_flight: many\npayload_schemas:"}, trigger,
			[]string{`: max_in_flight must be an integer`},
		},
		{
			"two things at once", []string{"phase: post_writeback", "phase: never", "payload_schemas:", "max_in_flight: 0\npayload_schemas:"}, trigger,
			[]string{
				`: max_in_flight must be from 1 to 65536`,
				`: registration.phase must be "post_writeback"`,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := readInstalled(t)
			data := string(files.Hooks[1].Data)
			for i := 0; i < len(test.edit); i += 2 {
				if !strings.Contains(data, test.edit[i]) {
					t.Fatalf("the hook file does not contain %q", test.edit[i])
				}
			}
			files.Hooks[1].Data = []byte(strings.NewReplacer(test.edit...).Replace(data))
			if test.hookID == "" {
				// Nothing then counts as installed under the id, so no profile may name it.
				files.Profiles.Data = []byte("profiles: {default: {enabled: true, hooks: [inventory.recount]}}")
			}
			installed, err := registry.Load(files)
			if err != nil {
				t.Fatal(err)
			}
			if len(installed.Rejections) != 1 {
				t.Fatalf("%d rejections, want 1", len(installed.Rejections))
			}
			rejection := installed.Rejections[0]
			var got []string
			for _, problem := range rejection.Problems {
				got = append(got, strings.TrimPrefix(problem.String(), triggerFile))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error("problems differ (-want +got):\n" + diff)
			}
			if rejection.HookID != test.hookID || rejection.Reason != events.RefusedMalformed || rejection.Profile != "" {
				t.Errorf("rejection of %q for %q in profile %q, want of %q for malformed everywhere",
					rejection.HookID, rejection.Reason, rejection.Profile, test.hookID)
			}
			if _, ok := installed.Hooks[trigger]; ok {
				t.Error("the rejected hook is installed")
			}
			if diff := cmp.Diff([]string{recount}, installed.Profiles["default"].Hooks); diff != "" {
				t.Error("hooks that run differ (-want +got):\n" + diff)
			}
		})
	}
}

// A JSON file is not read as YAML, which would take 1e3 for 1000.
func TestRegistrationInAJSONFileIsDecodedAsItStands(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"exponent", `"timeout_ms": 250`, `"timeout_ms": 2.5e2`, ": registration.budget.timeout_ms must be a plain integer within ±(2^53−1)"},
		{"member twice", `"phase":`, `"phase": "post_writeback", "phase":`, ": registration.phase stands twice"},
		{"schema member twice", `{"type": "object"}`, `{"type": "object", "type": "object"}`, ": payload_schemas.inventory.recount_request.type stands twice"},
		{"comment", `"max_in_flight"`, "# none\n\"max_in_flight\"", " must be valid JSON"},
		{"second value", `"backlog_ceiling": 500` + "\n}", `"backlog_ceiling": 500` + "\n} {}", " must be valid JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := readInstalled(t)
			data := string(files.Hooks[0].Data)
			if !strings.Contains(data, test.old) {
				t.Fatalf("the hook file does not contain %q", test.old)
			}
			files.Hooks[0].Data = []byte(strings.Replace(data, test.old, test.new, 1))
			report := registry.Check(files)
			if diff := cmp.Diff([]string{recountFile + test.want}, report.Hooks[0].Problems); diff != "" {
				t.Error("problems differ (-want +got):\n" + diff)
			}
		})
	}
}

func TestOversizedFileIsNotParsed(t *testing.T) {
	files := readInstalled(t)
	files.Hooks[1].Data = append(files.Hooks[1].Data, make([]byte, registry.MaxFileBytes)...)
	files.Profiles.Data = []byte("profiles: {default: {enabled: true, hooks: [inventory.recount]}}")
	installed, err := registry.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	got := installed.Rejections[0]
	if got.Reason != events.RefusedTooLarge || got.Problems[0].String() != triggerFile+" must be at most 1048576 bytes" {
		t.Errorf("rejected as %s: %s, want too_large", got.Reason, got.Problems[0])
	}
}

func TestHookAboveTheCeilingsOfAProfileIsRejectedThereOnly(t *testing.T) {
	files := readInstalled(t)
	files.Profiles.Data = []byte(`
profiles:
  default: {enabled: true, hooks: [inventory.recount, periodic_report.runtime_trigger]}
  narrow:
    enabled: true
    hooks: [inventory.recount, periodic_report.runtime_trigger]
    ceilings:
      hook: {max_invocations_per_dispatch: 2, max_intents_per_dispatch: 3, max_result_bytes: 16384, timeout_ms: 1000}
  slow: {enabled: true, hooks: [inventory.recount], ceilings: {hook: {timeout_ms: 249}}}
`)
	installed, err := registry.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	hooks := map[string][]string{}
	for name, profile := range installed.Profiles {
		hooks[name] = profile.Hooks
	}
	want := map[string][]string{"default": {recount, trigger}, "narrow": {trigger}, "slow": nil}
	if diff := cmp.Diff(want, hooks); diff != "" {
		t.Error("hooks that run differ (-want +got):\n" + diff)
	}
	got := map[string][]string{}
	for _, rejection := range installed.Rejections {
		if rejection.HookID != recount || rejection.Reason != events.RefusedOverCeiling {
			t.Errorf("%s is rejected for %s, want %s for over_ceiling", rejection.HookID, rejection.Reason, recount)
		}
		for _, problem := range rejection.Problems {
			got[rejection.Profile] = append(got[rejection.Profile], problem.String())
		}
	}
	wantProblems := map[string][]string{
		"narrow": {
			recountFile + `: registration.budget.max_invocations_per_dispatch must be at most 2 in the profile "narrow"`,
			recountFile + `: registration.budget.max_intents_per_dispatch must be at most 3 in the profile "narrow"`,
		},
		"slow": {recountFile + `: registration.budget.timeout_ms must be at most 249 in the profile "slow"`},
	}
	if diff := cmp.Diff(wantProblems, got); diff != "" {
		t.Error("problems differ (-want +got):\n" + diff)
	}
	if refusals := installed.Refusals(time.Now()); len(refusals) != 1 {
		t.Errorf("%d refusals of one file, want 1", len(refusals))
	}
}

func TestWhatTheFilesSayAgainstEachOtherRefusesToStart(t *testing.T) {
	const good = "default: {enabled: true, hooks: [inventory.recount, periodic_report.runtime_trigger]}"
	for _, test := range []struct {
		name     string
		profiles string
		want     []string
	}{
		{"empty file", "", []string{" must be a map of members"}},
		{"list", "- default\n", []string{" must be a map of members"}},
		{"no profile", "profiles: {}", []string{": profiles must hold a profile"}},
		{"profile twice", "profiles:\n  default: {}\n  default: {}\n", []string{` must be YAML: line 3: key "default" already set in map`}},
		{"unknown member", "profiles: {" + good + "}\nhooks: []", []string{": hooks is not a member"}},
		{"two documents", "profiles: {" + good + "}\n---\n", []string{" must be one YAML document"}},
		{"nothing said", "profiles: {default: {}}", []string{
			": profiles.default.enabled must be true or false",
			": profiles.default.hooks must list the hook ids that may run, or be []",
		}},
		{"one fault in each profile", "profiles: {a: {enable: true}, b: 7, C: {enabled: true, hooks: []}}", []string{
			": profiles.C must be named by a name",
			": profiles.a.enable is not a member",
			": profiles.b must be a map of members",
		}},
		{"hook that no file registers", "profiles: {default: {enabled: false, hooks: [inventory.recount, gone.hook]}}", []string{
			`: profiles.default.hooks[1] names the hook "gone.hook", which no file registers`,
		}},
		{"values of the wrong type", "profiles: {a: {enabled: 1}, b: {hooks: {}}, c: {hooks: [1]}, d: {ceilings: []}, e: {retry: {max_attempts: 1.5}}}", []string{
			": profiles.a.enabled must be true or false",
			": profiles.b.hooks must be a list",
			": profiles.c.hooks[0] must be a string",
			": profiles.d.ceilings must be a map of members",
			": profiles.e.retry.max_attempts must be an integer",
		}},
		{"bad allowlist", "profiles: {default: {enabled: true, hooks: [Recount, inventory.recount, inventory.recount]}}", []string{
			": profiles.default.hooks[0] must be a name",
			": profiles.default.hooks[2] must not repeat a hook id",
		}},
		{"retries out of range", "profiles: {default: {enabled: true, hooks: [], retry: {max_attempts: 101, initial: 2m, max: 1m}}}", []string{
			": profiles.default.retry.max_attempts must be from 1 to 100",
			": profiles.default.retry.max must be from retry.initial to 24h",
		}},
		{"no pause", "profiles: {default: {enabled: true, hooks: [], retry: {initial: 0s}}}", []string{
			": profiles.default.retry.initial must be from 1ms to 24h",
		}},
		{"pause that is no duration", "profiles: {default: {enabled: true, hooks: [], retry: {initial: soon}}}", []string{
			": profiles.default.retry.initial must be a duration such as 1s or 5m",
		}},
		{"pause that is a number", "profiles: {default: {enabled: true, hooks: [], retry: {initial: 10}}}", []string{
			": profiles.default.retry.initial must be a duration such as 1s or 5m",
		}},
		{
			"ceilings out of range",
			"profiles: {default: {enabled: true, hooks: [], ceilings: {hook: {max_invocations_per_dispatch: 17, " +
				"max_intents_per_dispatch: 0, max_result_bytes: 65537, timeout_ms: -1}, receipt: {max_intents: 0, max_result_bytes: 1023}}}}",
			[]string{
				": profiles.default.ceilings.hook.max_invocations_per_dispatch must be from 1 to 16",
				": profiles.default.ceilings.hook.max_intents_per_dispatch must be from 1 to 16",
				": profiles.default.ceilings.hook.max_result_bytes must be from 1024 to 65536",
				": profiles.default.ceilings.hook.timeout_ms must be from 1 to 30000",
				": profiles.default.ceilings.receipt.max_intents must be from 1 to 2147483647",
				": profiles.default.ceilings.receipt.max_result_bytes must be from 1024 to 2147483647",
			},
		},
		{
			// 1 + 4 intents and 16384 + 4096 bytes for todo_completed; replan_recorded has only the trigger's.
			"hooks of one event kind declare too much together",
			"profiles: {default: {enabled: true, hooks: [inventory.recount, periodic_report.runtime_trigger], " +
				"ceilings: {receipt: {max_intents: 4, max_result_bytes: 20479}}}}",
			[]string{
				": profiles.default.ceilings.receipt.max_intents is 4, and the hooks of todo_completed declare 5 together",
				": profiles.default.ceilings.receipt.max_result_bytes is 20479, and the hooks of todo_completed declare 20480 together",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := readInstalled(t)
			files.Profiles.Data = []byte(test.profiles)
			installed, err := registry.Load(files)
			var contradictions *registry.Contradictions
			if !errors.As(err, &contradictions) {
				t.Fatalf("Load() = %v, %v, want contradictions", installed, err)
			}
			var got []string
			for _, problem := range contradictions.Problems {
				got = append(got, strings.TrimPrefix(problem.String(), profilesFile))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error("contradictions differ (-want +got):\n" + diff)
			}
		})
	}
}

func TestSumOfWhatHooksDeclareMayReachTheCeiling(t *testing.T) {
	files := readInstalled(t)
	files.Profiles.Data = []byte("profiles: {default: {enabled: true, hooks: [inventory.recount, periodic_report.runtime_trigger], " +
		"ceilings: {receipt: {max_intents: 5, max_result_bytes: 20480}}}}")
	if _, err := registry.Load(files); err != nil {
		t.Error(err)
	}
}

func TestAllContradictionsAndWhatLedToThemAreListedTogether(t *testing.T) {
	files := readInstalled(t)
	second := files.Hooks[1]
	second.Name = "hooks/copy.yaml"
	files.Hooks = append(files.Hooks, second, registry.File{Name: "hooks/gone.yaml", Data: []byte("registration: {")})
	files.Profiles.Data = []byte(`
profiles:
  default: {enabled: true, hooks: [gone.hook], retry: {max_attempts: 0}}
  other: {enabled: true, hooks: [inventory.recount, gone.hook]}
`)
	_, err := registry.Load(files)
	if err == nil {
		t.Fatal("no error")
	}
	want := `registry: nothing can run with these files:
  ` + triggerFile + `: registration.hook_id "periodic_report.runtime_trigger" is registered by hooks/copy.yaml too
  ` + profilesFile + `: profiles.default.retry.max_attempts must be from 1 to 100
  ` + profilesFile + `: profiles.default.hooks[0] names the hook "gone.hook", which no file registers
  ` + profilesFile + `: profiles.other.hooks[1] names the hook "gone.hook", which no file registers
  rejected: hooks/gone.yaml must be YAML: line 1: did not find expected node content`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error("error differs (-want +got):\n" + diff)
	}
}

// A rejected hook with a readable id keeps its id taken and its profiles free of contradictions.
func TestRejectedHookCountsAsInstalled(t *testing.T) {
	files := readInstalled(t)
	broken := registry.File{
		Name: "hooks/a.yaml",
		Data: []byte(strings.Replace(string(files.Hooks[1].Data), "phase: post_writeback", "phase: never", 1)),
	}
	files.Hooks[1] = broken
	if installed, err := registry.Load(files); err != nil || len(installed.Profiles["strict"].Hooks) != 0 {
		t.Errorf("Load() = %v, %v, want a strict profile with no hook", installed, err)
	}
	files = readInstalled(t)
	files.Hooks = append(files.Hooks, broken)
	var contradictions *registry.Contradictions
	if _, err := registry.Load(files); !errors.As(err, &contradictions) || len(contradictions.Problems) != 1 {
		t.Errorf("Load() gives %v, want the one contradiction of two registrations with one hook id", err)
	}
}

func FuzzNoFilePanicsAndEveryAcceptedOneIsWhole(f *testing.F) {
	files := readInstalled(f)
	for _, file := range files.Hooks {
		f.Add(file.Data, files.Profiles.Data, strings.HasSuffix(file.Name, ".json"))
	}
	f.Add([]byte("registration: {hook_id: a.b}"), []byte("profiles: {a: {enabled: on, hooks: [a.b]}}"), false)
	f.Add([]byte("a: &a [*a]\n---\n"), []byte("? [a]\n: b"), false)
	f.Fuzz(func(t *testing.T, hook, profiles []byte, isJSON bool) {
		name := "hook.yaml"
		if isJSON {
			name = "hook.json"
		}
		files := registry.Files{
			Hooks:    []registry.File{{Name: name, Data: hook}},
			Profiles: registry.File{Name: "profiles.yaml", Data: profiles},
		}
		report := registry.Check(files)
		installed, err := registry.Load(files)
		if err != nil {
			if len(report.Problems) == 0 || report.Clean() {
				t.Fatalf("refused to start, and the report has no problem: %v", err)
			}
			return
		}
		if len(installed.Hooks)+len(installed.Rejections) == 0 {
			t.Fatal("the hook file is neither installed nor rejected")
		}
		for id, hook := range installed.Hooks {
			data, err := events.Encode(&hook.Registration)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := events.Decode[events.Registration](data); err != nil {
				t.Fatalf("the registration of %s is no document: %v", id, err)
			}
			for _, kind := range hook.Registration.IntentKinds {
				if hook.Payloads[kind] == nil {
					t.Fatalf("%s has no payload schema for %s", id, kind)
				}
			}
		}
		for _, profile := range installed.Profiles {
			for _, id := range profile.Hooks {
				if _, ok := installed.Hooks[id]; !ok {
					t.Fatalf("%s runs %s, which is not installed", profile.Name, id)
				}
			}
		}
		for _, refusal := range recorded(t, installed) {
			data, err := events.Encode(refusal)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := events.Decode[events.Refusal](data); err != nil {
				t.Fatalf("the refusal is no document: %v", err)
			}
		}
	})
}
