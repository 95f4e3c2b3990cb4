package registry_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
)

const (
	hooksDir     = "testdata/installed/hooks"
	profilesFile = "testdata/installed/profiles.yaml"
	trigger      = "periodic_report.runtime_trigger"
	recount      = "inventory.recount"
	triggerFile  = hooksDir + "/periodic_report.runtime_trigger.yaml"
	recountFile  = hooksDir + "/inventory.recount.json"
)

func readInstalled(tb testing.TB) registry.Files {
	tb.Helper()
	files, err := registry.ReadFiles([]string{hooksDir}, profilesFile)
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

func TestInstalledHooksAndProfilesAreWhatTheFilesSay(t *testing.T) {
	installed, err := registry.Load(readInstalled(t))
	if err != nil {
		t.Fatal(err)
	}

	wantProfiles := map[string]core.Profile{
		"default": {
			Name: "default", Enabled: true, Hooks: []string{trigger, recount},
			Ceilings: core.Ceilings{
				Hook: events.HookBudget{
					MaxInvocationsPerDispatch: 16, MaxIntentsPerDispatch: 16, MaxResultBytes: 65536, TimeoutMillis: 30000,
				},
				IntentsPerReceipt: 64, ResultBytesPerReceipt: 1048576,
			},
			Retry: core.Retry{MaxAttempts: 12, Initial: time.Second, Max: 5 * time.Minute},
		},
		"paused": {
			Name: "paused",
			Ceilings: core.Ceilings{
				Hook: events.HookBudget{
					MaxInvocationsPerDispatch: 16, MaxIntentsPerDispatch: 16, MaxResultBytes: 65536, TimeoutMillis: 30000,
				},
				IntentsPerReceipt: 64, ResultBytesPerReceipt: 1048576,
			},
			Retry: core.Retry{MaxAttempts: 12, Initial: time.Second, Max: 5 * time.Minute},
		},
		"strict": {
			Name: "strict", Enabled: true, Hooks: []string{trigger},
			Ceilings: core.Ceilings{
				Hook: events.HookBudget{
					MaxInvocationsPerDispatch: 1, MaxIntentsPerDispatch: 2, MaxResultBytes: 32768, TimeoutMillis: 2000,
				},
				IntentsPerReceipt: 2, ResultBytesPerReceipt: 32768,
			},
			Retry: core.Retry{MaxAttempts: 3, Initial: 10 * time.Second, Max: 15 * time.Second},
		},
	}
	if diff := cmp.Diff(wantProfiles, installed.Profiles); diff != "" {
		t.Error("profiles differ (-want +got):\n" + diff)
	}

	wantLimits := map[string]registry.Limits{
		trigger: {MaxInFlight: 512, BacklogCeiling: 1_000_000},
		recount: {MaxInFlight: 8, BacklogCeiling: 500},
	}
	if diff := cmp.Diff(wantLimits, installed.Limits); diff != "" {
		t.Error("limits differ (-want +got):\n" + diff)
	}

	wantRecount := events.Registration{
		SchemaVersion: "loopx_post_writeback_capability_hook_registration_v0",
		HookID:        recount, CapabilityID: "inventory", Phase: "post_writeback",
		EventKinds:         []events.EventKind{"todo_completed"},
		IntentKinds:        []string{"inventory.recount_request"},
		RequestedReadScope: []events.ReadScope{"settlement_identity"},
		Budget: events.HookBudget{
			MaxInvocationsPerDispatch: 3, MaxIntentsPerDispatch: 4, MaxResultBytes: 4096, TimeoutMillis: 250,
		},
		FailurePolicy: "isolate",
	}
	if diff := cmp.Diff(wantRecount, installed.Hooks[recount].Registration); diff != "" {
		t.Error("registration differs (-want +got):\n" + diff)
	}
	if len(installed.Hooks) != 2 || installed.Hooks[recount].Payloads["inventory.recount_request"] == nil {
		t.Errorf("installed hooks are %v, want two, each with its payload schemas", installed.Hooks)
	}
	if len(installed.Rejections) != 0 || installed.Refusals(time.Now()) != nil {
		t.Errorf("rejections = %v, want none", installed.Rejections)
	}
}

// The digest is that of the golden vectors, which were computed independently of this code.
func TestRegistrationReadFromYAMLHasTheGoldenDigest(t *testing.T) {
	installed, err := registry.Load(readInstalled(t))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "sha256_e54cc6b2ee87368ab497c00f6c25e42935247c493c69a07cc956036e8c8bca82"
	if got := installed.Hooks[trigger].Digest; got != golden {
		t.Errorf("digest = %s, want %s", got, golden)
	}
}

// By default 1+2+4+8+16+32+64+128+256 s and twice 300 s are waited after the first eleven of twelve attempts, each up
// to a fifth longer.
func TestRetryHorizonIsThatOfTheLongestProfile(t *testing.T) {
	installed, err := registry.Load(readInstalled(t))
	if err != nil {
		t.Fatal(err)
	}
	const want = 1111 * time.Second * 6 / 5
	if got := installed.RetryHorizon(); got != want {
		t.Errorf("RetryHorizon() = %s, want %s", got, want)
	}
}

func TestEveryWayToReadFilesGivesTheSame(t *testing.T) {
	installed := os.DirFS("testdata/installed")
	fromFS, err := registry.ReadFS(installed, "hooks", "profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	single, err := registry.ReadFiles([]string{recountFile, triggerFile}, profilesFile)
	if err != nil {
		t.Fatal(err)
	}
	fromDir := readInstalled(t)
	if diff := cmp.Diff(fromDir, single); diff != "" {
		t.Error("single files differ from their directory (-dir +files):\n" + diff)
	}
	names := []string{}
	for _, file := range fromFS.Hooks {
		names = append(names, file.Name)
	}
	want := []string{"hooks/inventory.recount.json", "hooks/periodic_report.runtime_trigger.yaml"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error("names differ (-want +got):\n" + diff)
	}
}

// A mounted config map is a folder of links into a hidden folder.
func TestMountedConfigMapIsReadThroughItsLinks(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(recountFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return os.Mkdir(dir+"/..2026_06_23", 0o755) },
		func() error { return os.WriteFile(dir+"/..2026_06_23/a.json", data, 0o600) },
		func() error { return os.Symlink("..2026_06_23", dir+"/..data") },
		func() error { return os.Symlink("..data/a.json", dir+"/a.json") },
		func() error { return os.Mkdir(dir+"/folder.yaml", 0o755) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := registry.ReadFiles([]string{dir}, profilesFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(files.Hooks) != 1 || files.Hooks[0].Name != dir+"/a.json" || string(files.Hooks[0].Data) != string(data) {
		t.Errorf("read %v, want the one linked file", files.Hooks)
	}
}

func TestEveryUnreadablePathIsNamed(t *testing.T) {
	_, err := registry.ReadFiles([]string{"testdata/absent.yaml", "testdata/absent"}, "testdata/no_profiles.yaml")
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"testdata/absent.yaml", "testdata/absent:", "testdata/no_profiles.yaml"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	if _, err := registry.ReadFS(fstest.MapFS{}, "hooks", "profiles.yaml"); err == nil {
		t.Error("ReadFS gives no error for an empty file system")
	}
}

// recorded are the refusals that the core makes of the rejections.
func recorded(t *testing.T, installed *registry.Installed) []*events.Refusal {
	t.Helper()
	var refusals []*events.Refusal
	for _, command := range installed.Refusals(time.Date(2026, 6, 23, 17, 12, 10, 0, time.UTC)) {
		result, err := core.Commit(command, core.State{}, core.System)
		if err != nil {
			t.Fatal(err)
		}
		refusals = append(refusals, result.Save.Refusal)
	}
	return refusals
}

func TestRefusalHoldsNothingOfTheFileButDigestSizeAndHookID(t *testing.T) {
	files := readInstalled(t)
	files.Hooks[0].Data = []byte(strings.Replace(string(files.Hooks[0].Data), `"isolate"`, `"retry"`, 1))
	files.Hooks = append(files.Hooks, registry.File{Name: "unreadable.yaml", Data: []byte("{")})

	installed, err := registry.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	want := []*events.Refusal{
		{
			SchemaVersion: "loopx_post_writeback_refusal_v0", Document: "registration", Code: "registration_rejected",
			Reason: "malformed", HookID: recount, RecordedAt: "2026-06-23T17:12:10Z",
			// sha256sum and wc of the file above with its failure policy changed
			Digest: "0d0f2afe4bd342e309dc321e14f0899d88dc168e33493b5abf624e3cfecfae67", Size: 657,
		},
		{
			SchemaVersion: "loopx_post_writeback_refusal_v0", Document: "registration", Code: "registration_rejected",
			Reason: "malformed", RecordedAt: "2026-06-23T17:12:10Z",
			// printf '{' | sha256sum
			Digest: "021fb596db81e6d02bf3d2586ee3981fe519f275c0ac9ca76bbcf2ebb4097d96", Size: 1,
		},
	}
	got := recorded(t, installed)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("refusals differ (-want +got):\n" + diff)
	}
	for _, refusal := range got {
		data, err := events.Encode(refusal)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Decode[events.Refusal](data); err != nil {
			t.Errorf("the refusal is no document: %v", err)
		}
	}
}

func TestCheckReportsEveryHookAndProfile(t *testing.T) {
	files := readInstalled(t)
	files.Profiles.Data = []byte(`
profiles:
  default: {enabled: true, hooks: [inventory.recount, periodic_report.runtime_trigger]}
  quick: {enabled: true, hooks: [inventory.recount, gone.hook], ceilings: {hook: {timeout_ms: 100}}, retry: {max_attempts: 1}}
`)
	got, err := json.Marshal(registry.Check(files), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Error("report differs (-want +got):\n" + diff)
	}
	if registry.Check(files).Clean() {
		t.Error("a report with problems is clean")
	}
	if !registry.Check(readInstalled(t)).Clean() {
		t.Error("a report without problems is not clean")
	}
}

func TestManyHooksShareWhatIsInFlight(t *testing.T) {
	for hooks, want := range map[int]int{0: 1024, 1: 1024, 4: 256, 5: 204, 16: 64, 1000: 32} {
		if got := registry.DefaultLimits(hooks).MaxInFlight; got != want {
			t.Errorf("of %d hooks each may have %d calls in flight, want %d", hooks, got, want)
		}
	}
}
