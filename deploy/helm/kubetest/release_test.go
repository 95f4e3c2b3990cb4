package kubetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v4/pkg/action"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	testdata = "../test/testdata/"
	hookFile = "inventory.recount.yaml"
	// dispatcher is the deployment of the dispatcher.
	dispatcher = "apps/v1/Deployment/" + release + "-dispatcher"
)

// Every step of a release's life, by a user with the installer's role, which must grant all that it takes and no more.
func TestAReleaseLivesByTheInstallersRole(t *testing.T) {
	asked, granted := new(rights), new(rights)
	for name, files := range map[string][]string{
		"minimal": {testdata + "minimal.yaml"},
		"full":    {testdata + "full.yaml"},
		"by NACK": {testdata + "minimal.yaml", testdata + "options/streams_by_nack.yaml", testdata + "options/scale_by_cpu.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t)
			granted.grant(c.role.Rules)
			l := &life{cluster: c, helm: c.installer(t), files: files, before: c.live(t)}
			defer func() { asked.add(l.helm.asked.sorted()...) }()
			for _, step := range []struct {
				name string
				take func(*testing.T)
			}{
				{"what is installed is there", l.install},
				{"an upgrade that changes nothing restarts nothing", l.upgradeAlike},
				{"a changed hook file restarts the dispatchers only", l.changeHookFile},
				{"what the API server refuses is rolled back", l.upgradeToInvalid},
				{"pods that Pod Security refuses are rolled back", l.upgradeToPrivileged},
				{"what the broker refuses changes nothing", l.upgradeToRefusedStreams},
				{"a rollback brings the first revision back", l.rollback},
				{"a removal leaves nothing", l.uninstall},
			} {
				if !t.Run(step.name, step.take) {
					return
				}
			}
		})
	}
	if !t.Failed() {
		if diff := cmp.Diff(granted.sorted(), asked.sorted()); diff != "" {
			t.Errorf("what the role grants and Helm asked for (-granted +asked):\n%s", diff)
		}
	}
}

func TestAnInstallationThatTheBrokerRefusesLeavesItsJobOnly(t *testing.T) {
	c := startCluster(t)
	h := c.installer(t)
	before := c.live(t)
	c.controllers.refuse(true)
	v := values(t, testdata+"minimal.yaml")
	if err := h.install(t, v); err == nil || !strings.Contains(err.Error(), "failed pre-install: resource Job/hooks/afterwrite-streams not ready") {
		t.Fatalf("got %v", err)
	}
	left := c.live(t)
	maps.DeleteFunc(left, func(key string, _ *unstructured.Unstructured) bool { return before[key] != nil })
	job := "batch/v1/Job/" + release + "-streams"
	if pods := c.pods(t)["streams"]; len(pods) != 1 || !slices.Equal(names(left), []string{job, "v1/Pod/" + pods[0]}) {
		t.Errorf("there is %v, not the job and its pod", names(left))
	}
	c.controllers.refuse(false)
	if err := h.install(t, v); err != nil {
		t.Fatal(err)
	}
	if _, there := c.released(t)[job]; there {
		t.Error("the job that failed is still there")
	}
}

func TestAProgramTakenFromItsListGoesWithAllItHad(t *testing.T) {
	c := startCluster(t)
	h := c.installer(t)
	v := values(t, testdata+"full.yaml")
	if err := h.install(t, v); err != nil {
		t.Fatal(err)
	}
	before := c.released(t)
	delete(v, "executors")
	if err := h.upgrade(t, v); err != nil {
		t.Fatal(err)
	}
	after := c.released(t)
	maps.DeleteFunc(before, func(key string, _ *unstructured.Unstructured) bool { return after[key] != nil })
	name := release + "-executor-recounts"
	want := []string{
		"apps/v1/Deployment/" + name, "keda.sh/v1alpha1/ScaledObject/" + name, "networking.k8s.io/v1/NetworkPolicy/" + name,
		"policy/v1/PodDisruptionBudget/" + name, "v1/ConfigMap/" + name, "v1/Service/" + name,
	}
	if diff := cmp.Diff(want, names(before)); diff != "" {
		t.Errorf("what went (-want +got):\n%s", diff)
	}
	if left := c.pods(t)["executor-recounts"]; len(left) > 0 {
		t.Errorf("there are still %v", left)
	}
}

// life is a release and what its steps so far have made of it.
type life struct {
	*cluster
	helm  *helm
	files []string
	// before is what was in the namespace when nothing was installed.
	before map[string]*unstructured.Unstructured
	// installed and current are what the release consisted of at first, and consists of.
	installed, current map[string]*unstructured.Unstructured
	// jobs is how many ran.
	jobs int
}

// byJob tells whether a job applies the streams.
func (l *life) byJob(t *testing.T) bool {
	t.Helper()
	by, _, err := unstructured.NestedString(values(t, l.files...), "streams", "by")
	if err != nil {
		t.Fatal(err)
	}
	return by == "" || by == "job"
}

func (l *life) install(t *testing.T) {
	if err := l.helm.install(t, values(t, l.files...)); err != nil {
		t.Fatal(err)
	}
	l.isAt(t, "1 deployed")
	l.installed = l.released(t)
	l.current = l.installed
	rendered := map[string]*unstructured.Unstructured{}
	for _, o := range documents(t, []byte(l.helm.manifest(t))) {
		rendered[key(o)] = o
		if stored, ok := l.installed[key(o)]; ok {
			if lost := missing("", o.Object, stored.Object); len(lost) > 0 {
				t.Errorf("%s is not stored as it was rendered: %s", key(o), strings.Join(lost, ", "))
			}
		}
	}
	if diff := cmp.Diff(names(rendered), names(l.installed)); diff != "" {
		t.Errorf("objects (-rendered +installed):\n%s", diff)
	}
	l.jobsRan(t, 1)
}

func (l *life) upgradeAlike(t *testing.T) {
	pods := l.pods(t)
	if err := l.helm.upgrade(t, values(t, l.files...)); err != nil {
		t.Fatal(err)
	}
	l.isAt(t, "2 deployed")
	for key, o := range l.released(t) {
		if o.GetResourceVersion() != l.current[key].GetResourceVersion() {
			t.Errorf("%s was written", key)
		}
	}
	l.changed(t, nil)
	l.jobsRan(t, 1)
	if diff := cmp.Diff(pods, l.pods(t)); diff != "" {
		t.Errorf("pods (-before +after):\n%s", diff)
	}
}

func (l *life) changeHookFile(t *testing.T) {
	v := values(t, l.files...)
	file := v["hooks"].(map[string]any)[hookFile].(string)
	changed := strings.Replace(file, "timeout_ms: 500", "timeout_ms: 400", 1)
	v["hooks"].(map[string]any)[hookFile] = changed
	pods := l.pods(t)
	if err := l.helm.upgrade(t, v); err != nil {
		t.Fatal(err)
	}
	l.isAt(t, "3 deployed")
	l.changed(t, map[string]string{
		dispatcher:                               "spec.template.metadata.annotations.checksum/installed",
		"v1/ConfigMap/" + release + "-installed": "data." + hookFile,
	})
	l.jobsRan(t, 1)
	if ran := l.controllers.jobsRan(); l.byJob(t) && ran[len(ran)-1][hookFile] != changed {
		t.Error("the job read another hook file than the dispatchers will")
	}
	for program, names := range l.pods(t) {
		if kept := slices.Equal(names, pods[program]); kept == (program == "dispatcher") {
			t.Errorf("the pods of %s were kept: %t", program, kept)
		}
	}
}

func (l *life) upgradeToInvalid(t *testing.T) {
	v := values(t, l.files...)
	set(t, v, "1Mi", "dispatcher", "resources", "limits", "memory")
	err := l.helm.upgrade(t, v)
	if err == nil || !strings.Contains(err.Error(), "must be less than or equal to memory limit of 1Mi") {
		t.Fatalf("got %v", err)
	}
	l.isAt(t, "5 deployed")
	l.changed(t, nil)
	l.jobsRan(t, 2)
}

func (l *life) upgradeToPrivileged(t *testing.T) {
	pods := l.pods(t)
	err := l.helm.upgrade(t, values(t, l.files...), func(u *action.Upgrade) {
		u.PostRenderStrategy = action.PostRenderStrategyNoHooks
		u.PostRenderer = replacing("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
	})
	if err == nil || !strings.Contains(err.Error(), "Progress deadline exceeded") {
		t.Fatalf("got %v", err)
	}
	if warned := strings.Join(l.helm.warnings.take(), "\n"); !strings.Contains(warned, `would violate PodSecurity "restricted:latest"`) {
		t.Errorf("the API server warned only of %q", warned)
	}
	l.isAt(t, "7 deployed")
	l.changed(t, nil)
	l.jobsRan(t, 2)
	if diff := cmp.Diff(pods, l.pods(t)); diff != "" {
		t.Errorf("pods (-before +after):\n%s", diff)
	}
}

// upgradeToRefusedStreams leaves the job that failed, for its log.
func (l *life) upgradeToRefusedStreams(t *testing.T) {
	if !l.byJob(t) {
		return
	}
	l.controllers.refuse(true)
	defer l.controllers.refuse(false)
	v := values(t, l.files...)
	set(t, v, "24h", "streams", "settings", "receiptsAge")
	err := l.helm.upgrade(t, v, stayOnFailure)
	if err == nil || !strings.Contains(err.Error(), "pre-upgrade hooks failed") {
		t.Fatalf("got %v", err)
	}
	l.isAt(t, "8 failed")
	job := "batch/v1/Job/" + release + "-streams"
	left := l.released(t)
	if _, ok := left[job]; !ok {
		t.Error("the job is gone, and its log with it")
	}
	if len(l.pods(t)["streams"]) != 1 {
		t.Error("the job's pod is gone, and its log with it")
	}
	l.jobsRan(t, 1)
	delete(left, job)
	if diff := cmp.Diff(content(l.current), content(left)); diff != "" {
		t.Errorf("what the release consists of (-before +after):\n%s", diff)
	}
}

func (l *life) rollback(t *testing.T) {
	if err := l.helm.rollback(t, 1); err != nil {
		t.Fatal(err)
	}
	l.current = l.released(t)
	if diff := cmp.Diff(content(l.installed), content(l.current)); diff != "" {
		t.Errorf("what the release consists of (-first +after):\n%s", diff)
	}
	l.jobsRan(t, 1)
}

func (l *life) uninstall(t *testing.T) {
	if err := l.helm.uninstall(t); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func(context.Context) error {
		if diff := cmp.Diff(names(l.before), names(l.live(t))); diff != "" {
			return errors.New("in the namespace (-before +after):\n" + diff)
		}
		return nil
	})
}

// isAt holds the newest revision and its status, and that the API server had nothing to say on the way there.
func (l *life) isAt(t *testing.T, want string) {
	t.Helper()
	if got := l.helm.newest(t); got != want {
		t.Errorf("the release is at %s, not %s", got, want)
	}
	for _, warning := range l.helm.warnings.take() {
		t.Errorf("the API server warns: %s", warning)
	}
}

// changed holds which objects differ from those before, and in which members.
func (l *life) changed(t *testing.T, want map[string]string) {
	t.Helper()
	now := l.released(t)
	before, after := content(l.current), content(now)
	if diff := cmp.Diff(names(before), names(after)); diff != "" {
		t.Errorf("what there is (-before +after):\n%s", diff)
	}
	got := map[string]string{}
	for key := range after {
		if members := differing("", before[key], after[key]); len(members) > 0 {
			got[key] = strings.Join(members, ", ")
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what changed (-want +got):\n%s", diff)
	}
	l.current = now
}

// jobsRan holds how many jobs ran since it was last asked, if a job applies the streams at all.
func (l *life) jobsRan(t *testing.T, want int) {
	t.Helper()
	if !l.byJob(t) {
		want = 0
	}
	ran := len(l.controllers.jobsRan())
	if ran-l.jobs != want {
		t.Errorf("%d jobs ran, not %d", ran-l.jobs, want)
	}
	l.jobs = ran
}

// set sets a member of values, and creates what is above it.
func set(t *testing.T, values map[string]any, v any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(values, v, path...); err != nil {
		t.Fatal(err)
	}
}

// differing are the paths of what differs.
func differing(path string, a, b any) []string {
	left, isMap := a.(map[string]any)
	right, areMaps := b.(map[string]any)
	if !isMap || !areMaps {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []string{path}
	}
	var all []string
	members := maps.Clone(left)
	maps.Copy(members, right)
	for _, member := range slices.Sorted(maps.Keys(members)) {
		all = append(all, differing(strings.TrimPrefix(path+"."+member, "."), left[member], right[member])...)
	}
	return all
}

// missing are the paths of what is wanted and not there as it is wanted. The API server adds its defaults, and writes a
// quantity as text.
func missing(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		has, _ := got.(map[string]any)
		var all []string
		for _, member := range slices.Sorted(maps.Keys(want)) {
			all = append(all, missing(strings.TrimPrefix(path+"."+member, "."), want[member], has[member])...)
		}
		return all
	case []any:
		has, _ := got.([]any)
		if len(has) != len(want) {
			return []string{path}
		}
		var all []string
		for i := range want {
			all = append(all, missing(fmt.Sprintf("%s[%d]", path, i), want[i], has[i])...)
		}
		return all
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			return []string{path}
		}
		return nil
	}
}
