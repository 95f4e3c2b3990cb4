package events_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/events"
)

func TestScanRefuses(t *testing.T) {
	for rule, texts := range map[events.BoundaryRule][]string{
		events.BoundaryURL: {
			"https://tracker.example.test/T-1", "http://x", "HTTPS://EXAMPLE.TEST", "s3://bucket/key", "postgres://u:p@db/x",
			"git+ssh://host/repo", "file:///etc/passwd", "see-https://x", "mailto:ada@example.test", "MAILTO:ada",
			"www.example.test", "WWW.example.test", "read www.example.test now", "x://y",
		},
		events.BoundaryPath: {
			"/", "/srv/private/notes.md", "/etc", "path=/etc/passwd", "a:/b", "(/usr/bin)", `"/tmp"`, "//server/share",
			"~", "~/notes", "~ada/notes", `~\notes`, "$HOME", "$HOME/notes", "${HOME}/x", "%USERPROFILE%\\x", "%appdata%",
			`C:\Users\ada`, "c:/users", `dir=D:\x`, `\\server\share`, `\\?\C:\x`, `\Windows\System32`,
		},
		events.BoundaryEmail: {
			"ada@example.test", "ada.lovelace+x@mail.example.test", "git@github.com:org/repo", "<ada@example.test>",
			"adä@exämple.test",
		},
		events.BoundaryCredential: {
			"Bearer abcdef0123456789", "bearer eyJhbGciOi", "Authorization: Bearer abc", "Basic dXNlcjpwYXNzd29yZA==",
			"AKIAIOSFODNN7EXAMPLE", "key-AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE",
			"ghp_0123456789abcdefghijklmnopqrstuvwxyz", "gho_0123456789abcdefghijklmnopqrstuvwxyz",
			"goal:ghs_0123456789abcdefghijklmnopqrstuvwxyz", "github_pat_11ABCDEFG0123456789_abcdef",
			"glpat-0123456789abcdefghij", "sk-0123456789abcdef0123", "sk-proj-AbCdEf0123456789_xyz", "sk-ant-api03-R2D2c3poBB8R2D2",
			"xoxb-123456789012-abcdef", "xoxp-123456789012", "sk_live_0123456789abcdef",
			"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
			"-----BEGIN PRIVATE KEY-----\nMIIB", "-----BEGIN RSA PRIVATE KEY-----", "x-----BEGIN CERTIFICATE-----",
			"SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU",
			"password=hunter2", "PASSWORD = hunter2", "DB_PASSWORD=x", "dbPassword=x", "api_key:abc", "api-key: abc", "apikey=1",
			"X-Api-Key: abc", "AWS_SECRET_ACCESS_KEY=abc", "client_secret=abc", "token=abc", "secret: abc",
			`{"password":"x"}`, "authorization: x", "password:hunter2",
		},
		events.BoundaryProse: {
			"please ask the owner about the rollout", "two words", " ", "tab\tbetween", "first\nsecond", "bell\x07", "del\x7f",
			"no\u00a0break", "line\u2028separator", "zero\u200bwidth", "right\u202eto left", "bad\xffutf8", "trailing ",
			"修复登录页面的错误", "これは文章です", "bearer of news",
		},
	} {
		for _, text := range texts {
			if got := events.Scan(text); got != rule {
				t.Errorf("Scan(%q) = %q, want %q", text, got, rule)
			}
		}
	}
}

func TestScanPassesWhatOnlySpeaksOfSuchThings(t *testing.T) {
	for _, text := range []string{
		"", "catalog", "backlog_count", "token_bucket_rev", "sk-learn", "sk-learn-feature-pipeline-v2", "task-list", "risk-1",
		"disk-usage-report-2026-06-23", "public-long-horizon-loop", "codex-product-capability",
		"public-long-horizon-loop:codex-product-capability:todo_protocol_contract:turn_001",
		"goal:token:turn_1", "todo_rotate_api_key:turn_001", "secret:turn_1", "rev:password", "password", "api_key", "password=",
		"2026-06-23T17:12:10Z", "2026-06-23T17:12:10.5+02:00", "2026-06-23T17:12:10-07:00",
		"application/json", "and/or", "refs/heads/main", "a/b:c", "n/a", "50%", "100%25", "x~1", "lodash@4.17.21", "owner@host", "@handle",
		"$HOMEWARD", "$1", "a=b", "a:b", "1:2", "C:", "wwwhat", "www", "www.", "eyJ", "eyJ.eyJ.", "AKIA", "AKIA-2026", "ghp_rev_001",
		"xoxo", "hugs-xoxo-and-more", "basic", "bearer", "mailto", "----", "sha256_" + strings.Repeat("0a", 32), "Zürich", "naïve_plan", "東京",
		"SUMMARY_OF_THE_LONG_HORIZON_LOOP_AND_WHAT_CAME_OF_IT_IN_JUNE", `\d+`, "tokens=3", "http:",
	} {
		if got := events.Scan(text); got != "" {
			t.Errorf("Scan(%q) = %q, want public-safe", text, got)
		}
	}
}

// theIntent is public-safe.
func theIntent() *events.Intent {
	return &events.Intent{
		CapabilityID: "periodic_report", FailurePolicy: events.Isolate, HookID: "periodic_report.runtime_trigger",
		IntentKind: "periodic_report.trigger_evaluation", Operation: "evaluate_runtime_trigger", PolicyVersion: "weekly_v0",
		Payload:             jsontext.Value(`{"goal_id":"goal_a","refs":["a",{"deep":["b"]}],"n":1}`),
		RequestedWriteScope: []string{"repo:docs"}, SchemaVersion: events.IntentSchema,
	}
}

func TestEveryStringOfAnIntentIsScanned(t *testing.T) {
	if rule := theIntent().CheckBoundary(); rule != "" {
		t.Fatalf("a public-safe intent breaks %s", rule)
	}
	const secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
	for name, change := range map[string]func(*events.Intent){
		"capability_id":         func(i *events.Intent) { i.CapabilityID = secret },
		"failure_policy":        func(i *events.Intent) { i.FailurePolicy = secret },
		"hook_id":               func(i *events.Intent) { i.HookID = secret },
		"intent_id":             func(i *events.Intent) { i.IntentID = secret },
		"intent_kind":           func(i *events.Intent) { i.IntentKind = secret },
		"operation":             func(i *events.Intent) { i.Operation = secret },
		"policy_version":        func(i *events.Intent) { i.PolicyVersion = secret },
		"requested_write_scope": func(i *events.Intent) { i.RequestedWriteScope = []string{"repo", secret} },
		"schema_version":        func(i *events.Intent) { i.SchemaVersion = secret },
		"source_dispatch_id":    func(i *events.Intent) { i.SourceDispatchID = secret },
		"payload string":        func(i *events.Intent) { i.Payload = jsontext.Value(`{"a":[{"b":"` + secret + `"}]}`) },
		"payload member name":   func(i *events.Intent) { i.Payload = jsontext.Value(`{"a":[{"` + secret + `":1}]}`) },
		"escaped":               func(i *events.Intent) { i.Payload = jsontext.Value(`{"a":"\u0067` + secret[1:] + `"}`) },
	} {
		intent := theIntent()
		change(intent)
		if got := intent.CheckBoundary(); got != events.BoundaryCredential {
			t.Errorf("a credential in %s gives %q", name, got)
		}
	}
}

func TestScanJSONSeesStringsAsTheyAreMeant(t *testing.T) {
	for text, want := range map[string]events.BoundaryRule{
		`"plain"`:                  "",
		`{"a":"b","c":[1,null]}`:   "",
		`{"a" : "b" }`:             "",
		`"first\nsecond"`:          events.BoundaryProse,
		`"C:\\Users"`:              events.BoundaryPath,
		`"\\\\server\\share"`:      events.BoundaryPath,
		`"a\"b"`:                   "",
		`"https:\/\/example.test"`: events.BoundaryURL,
		`{"two words":1}`:          events.BoundaryProse,
		`"open`:                    events.BoundaryProse,
		`"bad \q escape"`:          events.BoundaryProse,
		`"\`:                       events.BoundaryProse,
	} {
		if got := events.ScanJSON(jsontext.Value(text)); got != want {
			t.Errorf("ScanJSON(%s) = %q, want %q", text, got, want)
		}
	}
}

func TestAnInputIsHeldToTheBoundaryMemberByMember(t *testing.T) {
	input := func() *events.HookInput {
		return &events.HookInput{
			Projection: &events.Projection{Transition: events.SegmentCompleted, FactRefs: []string{"fact_a"}},
			Source: &events.HookSource{
				AgentID: "a", EffectID: strings.Repeat("e", 1024), GoalID: "g", ReceiptID: "r", StateRevision: "v", StepKind: "s", TodoID: "t",
				TurnInstanceID: "u", CommittedAt: "2026-10-01T08:00:00+02:00", EventKind: events.TodoCompleted,
			},
		}
	}
	for name, tc := range map[string]struct {
		change func(*events.HookInput)
		want   events.BoundaryRule
	}{
		"public-safe":          {func(*events.HookInput) {}, ""},
		"nothing read":         {func(in *events.HookInput) { in.Source, in.Projection = nil, nil }, ""},
		"a flag":               {func(in *events.HookInput) { in.Boundary.AbsolutePathsRecorded = true }, events.BoundaryFlag},
		"the flag comes first": {func(in *events.HookInput) { in.Boundary.RawLogsRecorded, in.Source.GoalID = true, "/x" }, events.BoundaryFlag},
		"a precise rule":       {func(in *events.HookInput) { in.Source.GoalID = "two words" }, events.BoundaryProse},
		"an opaque secret":     {func(in *events.HookInput) { in.Source.TodoID = "AKIAIOSFODNN7EXAMPLE" }, events.BoundaryCredential},
		"no precise rule":      {func(in *events.HookInput) { in.Source.AgentID = "agent/a" }, events.BoundaryNotOpaque},
		"an empty id":          {func(in *events.HookInput) { in.Source.TurnInstanceID = "" }, events.BoundaryNotOpaque},
		"a long id":            {func(in *events.HookInput) { in.Source.ReceiptID = strings.Repeat("r", 257) }, events.BoundaryNotOpaque},
		"a longer effect":      {func(in *events.HookInput) { in.Source.EffectID += "e" }, events.BoundaryNotOpaque},
		"a step":               {func(in *events.HookInput) { in.Source.StepKind = "~/x" }, events.BoundaryPath},
		"a revision":           {func(in *events.HookInput) { in.Source.StateRevision = "www.example.test" }, events.BoundaryURL},
		"a fact":               {func(in *events.HookInput) { in.Projection.FactRefs = []string{"a", "ada@example.test"} }, events.BoundaryEmail},
		"a transition":         {func(in *events.HookInput) { in.Projection.Transition = "it has ended" }, events.BoundaryProse},
	} {
		in := input()
		tc.change(in)
		if got := in.CheckBoundary(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
