package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/executors"
	"github.com/afterwrite/afterwrite/internal/flags"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
	"github.com/afterwrite/afterwrite/streams"
)

const example = "../examples/periodic-report.yaml"

// What is applied and what is checked must be the same, or no dispatcher gets ready.
func TestTheJobAndTheDispatchersAreToldTheSame(t *testing.T) {
	everyCase(t, func(t *testing.T, objects []object) {
		told := func(c corev1.Container) map[string]string {
			m := map[string]string{}
			for _, v := range c.Env {
				m[v.Name] = v.Value
			}
			for _, own := range []string{"STOP_GRACE", "LISTEN", "NATS_CREDS", "NATS_NKEY"} {
				delete(m, "AFTERWRITE_"+own)
			}
			return m
		}
		for _, job := range ofType[batchv1.Job](objects) {
			name := strings.TrimSuffix(job.Name, "streams") + "dispatcher"
			dispatcher := told(named[appsv1.Deployment](t, objects, name).Spec.Template.Spec.Containers[0])
			for variable, value := range told(job.Spec.Template.Spec.Containers[0]) {
				if strings.HasPrefix(variable, "AFTERWRITE_") && dispatcher[variable] != value {
					t.Errorf("the job is given %s=%q, the dispatcher %q", variable, value, dispatcher[variable])
				}
			}
		}
	})
}

// installed reads what a pod finds where it is told to look, as the program would.
func installed(t *testing.T, objects []object, spec corev1.PodSpec) registry.Files {
	t.Helper()
	var files registry.Files
	for name, data := range mounted(t, objects, spec) {
		switch dir, _, _ := strings.Cut(strings.TrimPrefix(name, "/etc/afterwrite/"), "/"); dir {
		case "hooks":
			files.Hooks = append(files.Hooks, registry.File{Name: name, Data: data})
		case "profiles":
			files.Profiles = registry.File{Name: name, Data: data}
		}
	}
	return files
}

// mounted are the files that a pod finds in its config maps, by their path.
func mounted(t *testing.T, objects []object, spec corev1.PodSpec) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, mount := range spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			t.Fatalf("there is no volume %s", mount.Name)
		}
		source := spec.Volumes[i].ConfigMap
		if source == nil {
			continue
		}
		data := named[corev1.ConfigMap](t, objects, source.Name).Data
		items := source.Items
		if items == nil {
			for key := range data {
				items = append(items, corev1.KeyToPath{Key: key, Path: key})
			}
		}
		for _, item := range items {
			text, ok := data[item.Key]
			if !ok {
				t.Fatalf("the config map %s has no %s", source.Name, item.Key)
			}
			files[mount.MountPath+"/"+item.Path] = []byte(text)
		}
	}
	return files
}

func TestInstalledFilesArriveAsTheyStandAndWouldRun(t *testing.T) {
	everyCase(t, func(t *testing.T, objects []object) {
		for _, p := range pods(objects) {
			if !strings.HasSuffix(p.owner, "-dispatcher") && !strings.HasSuffix(p.owner, "-streams") {
				continue
			}
			if report := registry.Check(installed(t, objects, p.Spec)); !report.Clean() || len(report.Hooks) == 0 {
				t.Errorf("%s would not run everything: %+v", p.owner, report)
			}
		}
	})
}

func TestGrantsArriveAsTheyStandAndAreTaken(t *testing.T) {
	objects := render(t, values(t, full))
	want := []byte(values(t, full)["executors"].([]any)[0].(map[string]any)["grants"].(string))
	spec := named[appsv1.Deployment](t, objects, "afterwrite-executor-recounts").Spec.Template.Spec
	if got := mounted(t, objects, spec)[variable(spec.Containers[0], "AFTERWRITE_GRANTS")]; !bytes.Equal(got, want) {
		t.Errorf("the executor reads %q, want %q", got, want)
	}
	job := named[batchv1.Job](t, objects, "afterwrite-streams").Spec.Template.Spec
	if got := mounted(t, objects, job)["/etc/afterwrite/grants/recounts.yaml"]; !bytes.Equal(got, want) {
		t.Errorf("the job reads %q, want %q", got, want)
	}
	if _, err := executors.ParseGrants(want); err != nil {
		t.Error(err)
	}
}

func TestAChangedFileRestartsWhoReadsIt(t *testing.T) {
	checksums := func(v map[string]any) map[string]string {
		m := map[string]string{}
		for _, p := range pods(render(t, v)) {
			m[p.owner] = p.Annotations["checksum/installed"] + p.Annotations["checksum/grants"]
		}
		return m
	}
	before := checksums(values(t, full))
	v := values(t, full)
	v["profiles"] = v["profiles"].(string) + "# changed\n"
	executor := v["executors"].([]any)[0].(map[string]any)
	executor["grants"] = executor["grants"].(string) + "# changed\n"
	after := checksums(v)
	for owner, restarts := range map[string]bool{
		"apps/v1/Deployment/afterwrite-dispatcher":         true,
		"apps/v1/Deployment/afterwrite-executor-recounts":  true,
		"apps/v1/Deployment/afterwrite-provider-inventory": false,
	} {
		if (before[owner] != after[owner]) != restarts {
			t.Errorf("%s restarts: %t, want %t", owner, !restarts, restarts)
		}
	}
}

func TestTheExampleInstallsThePeriodicReportAsItIs(t *testing.T) {
	objects := render(t, values(t, example))
	spec := named[appsv1.Deployment](t, objects, "afterwrite-dispatcher").Spec.Template.Spec
	files := installed(t, objects, spec)
	if len(files.Hooks) != 1 {
		t.Fatalf("%d hooks", len(files.Hooks))
	}
	var got, want any
	for data, v := range map[*[]byte]*any{&files.Hooks[0].Data: &got, &periodicreport.HookFile: &want} {
		if err := json.Unmarshal(*data, v); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hook file (-want +got):\n%s", diff)
	}
}

func TestScalingByLagWatchesTheConsumersThatAreThere(t *testing.T) {
	objects := render(t, values(t, full))
	watched := map[string][][2]string{}
	for _, o := range ofType[ScaledObject](objects) {
		if target := o.Spec.ScaleTargetRef; target.Kind != "Deployment" || target.Name != o.Name {
			t.Errorf("%s scales %+v", o.Name, target)
		}
		for _, trigger := range o.Spec.Triggers {
			watched[o.Name] = append(watched[o.Name], [2]string{trigger.Metadata.Stream, trigger.Metadata.Consumer})
		}
	}
	want := map[string][][2]string{
		"afterwrite-dispatcher": {{streams.Receipts, streams.DispatcherConsumer}},
		// The other grant is off: what waits for it is no reason to scale.
		"afterwrite-executor-recounts": {{streams.Intents, streams.ExecutorConsumer("stock.recounter", "inventory.recount_due")}},
	}
	if diff := cmp.Diff(want, watched); diff != "" {
		t.Errorf("consumers (-want +got):\n%s", diff)
	}
}

// The resources of the NATS controllers are made into streams on a real broker, which a dispatcher then checks.
func TestStreamsDeclaredAsResourcesAreThoseThatDispatchersCheck(t *testing.T) {
	v := loader.MergeMaps(values(t, minimal, "testdata/options/streams_by_nack.yaml"), map[string]any{
		"streams": map[string]any{"settings": map[string]any{
			"replicas": 1, "receiptsSize": "1MiB", "journalSize": "3145728", "intentsSize": "5KiB", "executionsSize": "1GiB",
			"receiptsAge": "48h", "duplicateWindow": "90s",
		}},
	})
	settings := streams.Settings{
		Replicas: 1, ReceiptsMaxBytes: 1 << 20, JournalMaxBytes: 3 << 20, IntentsMaxBytes: 5 << 10, ExecutionsMaxBytes: 1 << 30,
		ReceiptsAge: 48 * time.Hour, DuplicateWindow: 90 * time.Second,
	}
	js, err := jetstream.New(connect(t))
	if err != nil {
		t.Fatal(err)
	}
	declared := ofType[Stream](render(t, v))
	for _, s := range declared {
		if !s.Spec.PreventDelete {
			t.Errorf("removing the chart must not delete %s", s.Spec.Name)
		}
		if _, err := js.CreateStream(t.Context(), streamOf(t, s)); err != nil {
			t.Fatalf("%s: %v", s.Spec.Name, err)
		}
	}
	topology := streams.Default(settings)
	for i := range topology.Streams {
		topology.Streams[i].Consumers = nil // the programs make their own
	}
	differences, err := streams.Check(t.Context(), js, topology)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		t.Error(d)
	}
	if len(declared) != len(topology.Streams) {
		t.Errorf("%d streams are declared, of %d", len(declared), len(topology.Streams))
	}
}

// streamOf reads a resource as the controller does: what it does not say is the server's default.
func streamOf(t *testing.T, s *Stream) jetstream.StreamConfig {
	t.Helper()
	duration := func(text string) time.Duration {
		if text == "" {
			return 0
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	enum := func(v json.Unmarshaler, text string) {
		if err := v.UnmarshalJSON([]byte(fmt.Sprintf("%q", text))); err != nil {
			t.Fatal(err)
		}
	}
	cfg := jetstream.StreamConfig{
		Name: s.Spec.Name, Description: s.Spec.Description, Subjects: s.Spec.Subjects, Replicas: s.Spec.Replicas,
		MaxAge: duration(s.Spec.MaxAge), Duplicates: duration(s.Spec.DuplicateWindow), MaxBytes: s.Spec.MaxBytes,
		MaxMsgsPerSubject: s.Spec.MaxMsgsPerSubject, DenyDelete: s.Spec.DenyDelete, DenyPurge: s.Spec.DenyPurge,
		AllowDirect: s.Spec.AllowDirect, AllowRollup: s.Spec.AllowRollup, AllowMsgSchedules: s.Spec.AllowMsgSchedules,
	}
	enum(&cfg.Retention, s.Spec.Retention)
	enum(&cfg.Discard, s.Spec.Discard)
	enum(&cfg.Storage, s.Spec.Storage)
	return cfg
}

func TestTheValuesForTheBrokerFitTheStreams(t *testing.T) {
	broker := values(t, "../nats-values.yaml")
	at := func(path ...string) any {
		var v any = broker
		for _, member := range path {
			v = v.(map[string]any)[member]
		}
		return v
	}
	c := named[appsv1.Deployment](t, render(t, values(t, minimal)), "afterwrite-dispatcher").Spec.Template.Spec.Containers[0]
	if got, want := fmt.Sprint(at("config", "cluster", "replicas")), variable(c, "AFTERWRITE_REPLICAS"); got != want {
		t.Errorf("%s servers for %s replicas", got, want)
	}
	var full flags.Size
	for _, stream := range []string{"RECEIPTS", "JOURNAL", "INTENTS", "EXECUTIONS"} {
		var size flags.Size
		if err := size.UnmarshalText([]byte(variable(c, "AFTERWRITE_"+stream+"_SIZE"))); err != nil {
			t.Fatal(err)
		}
		full += size
	}
	disk := resource.MustParse(at("config", "jetstream", "fileStore", "pvc", "size").(string))
	if disk.Value() < 2*int64(full) {
		t.Errorf("a disk of %s leaves too little beside streams of %s", disk.String(), full)
	}
	tested := connect(t).ConnectedServerVersion()
	if tag := at("container", "image", "tag").(string); !strings.HasPrefix(tag, tested+"-") {
		t.Errorf("the broker is %s, the one that is tested %s", tag, tested)
	}
}

// connect connects to a broker of the test's own.
func connect(t *testing.T) *nats.Conn {
	t.Helper()
	return connectTo(t, natsembed.StartTest(t).ClientURL())
}

func connectTo(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
