package kubetest

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/postrenderer"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
)

const (
	chartDir  = ".."
	release   = "afterwrite"
	namespace = "hooks"
	// patience is how long Helm waits. Nothing here takes long, but the machine may be busy.
	patience = 2 * time.Minute
)

// helm works on the release, and remembers what it asked the API server for, and of what that warned.
type helm struct {
	config   *action.Configuration
	asked    *rights
	warnings *warnings
}

// installer is Helm in the hands of the user who has the installer's role.
func (c *cluster) installer(t *testing.T) *helm {
	t.Helper()
	h := &helm{asked: new(rights), warnings: new(warnings)}
	flags := genericclioptions.NewConfigFlags(false)
	*flags.KubeConfig, *flags.Context, *flags.Namespace = c.kubeconfig, "installer", namespace
	*flags.CacheDir = t.TempDir()
	flags.WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		config.WarningHandler = h.warnings
		// As Helm's command has it.
		config.Burst = 100
		config.Wrap(h.asked.record)
		return config
	})
	h.config = action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := h.config.Init(flags, namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return h
}

// chart is loaded anew each time, for Helm merges values into it.
func chart(t *testing.T) *chartv2.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// install leaves nothing but the job if it fails.
func (h *helm) install(t *testing.T, values map[string]any, flags ...func(*action.Install)) error {
	t.Helper()
	install := action.NewInstall(h.config)
	install.ReleaseName, install.Namespace = release, namespace
	install.WaitStrategy, install.Timeout = kube.StatusWatcherStrategy, patience
	install.RollbackOnFailure = true
	for _, set := range flags {
		set(install)
	}
	_, err := install.Run(chart(t), values)
	return err
}

// upgrade goes back to the revision before if it fails, unless told otherwise.
func (h *helm) upgrade(t *testing.T, values map[string]any, flags ...func(*action.Upgrade)) error {
	t.Helper()
	upgrade := action.NewUpgrade(h.config)
	upgrade.Namespace = namespace
	upgrade.WaitStrategy, upgrade.Timeout = kube.StatusWatcherStrategy, patience
	upgrade.RollbackOnFailure = true
	for _, set := range flags {
		set(upgrade)
	}
	_, err := upgrade.Run(release, chart(t), values)
	return err
}

func stayOnFailure(u *action.Upgrade)  { u.RollbackOnFailure = false }
func forceConflicts(u *action.Upgrade) { u.ForceConflicts = true }

func (h *helm) rollback(t *testing.T, revision int) error {
	t.Helper()
	rollback := action.NewRollback(h.config)
	rollback.Version = revision
	rollback.WaitStrategy, rollback.Timeout = kube.StatusWatcherStrategy, patience
	return rollback.Run(release)
}

func (h *helm) uninstall(t *testing.T) error {
	t.Helper()
	uninstall := action.NewUninstall(h.config)
	uninstall.WaitStrategy, uninstall.Timeout = kube.StatusWatcherStrategy, patience
	_, err := uninstall.Run(release)
	return err
}

// newest is the newest revision and its status, as in "3 deployed".
func (h *helm) newest(t *testing.T) string {
	t.Helper()
	r := h.last(t)
	return fmt.Sprintf("%d %s", r.Version, r.Info.Status)
}

// manifest is what Helm sent, but for hooks.
func (h *helm) manifest(t *testing.T) string {
	t.Helper()
	return h.last(t).Manifest
}

func (h *helm) last(t *testing.T) *releasev1.Release {
	t.Helper()
	last, err := h.config.Releases.Last(release)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := last.(*releasev1.Release)
	if !ok {
		t.Fatalf("a release is %T", last)
	}
	return r
}

// replacing changes what is rendered, as a fault in a template would.
func replacing(old, with string) postrenderer.PostRenderer { return textReplacer{old, with} }

type textReplacer struct{ old, with string }

func (r textReplacer) Run(manifests *bytes.Buffer) (*bytes.Buffer, error) {
	return bytes.NewBufferString(strings.ReplaceAll(manifests.String(), r.old, r.with)), nil
}

// warnings are what the API server said of requests that it granted.
type warnings struct {
	mu    sync.Mutex
	heard []string
}

func (w *warnings) HandleWarningHeader(_ int, _, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, message)
}

// take gives what was heard since it was last taken.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}

// rights are what may be done in the namespace, each as in "patch deployments.apps".
type rights struct {
	mu  sync.Mutex
	all map[string]bool
}

func (r *rights) add(all ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]bool{}
	}
	for _, one := range all {
		r.all[one] = true
	}
}

func right(verb, group, resource string) string {
	return strings.TrimSuffix(verb+" "+resource+"."+group, ".")
}

func (r *rights) sorted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.all))
}

// grant adds what a role grants.
func (r *rights) grant(rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r.add(right(verb, group, resource))
				}
			}
		}
	}
}

// record adds what each request asks for, read from it as the API server reads it.
func (r *rights) record(next http.RoundTripper) http.RoundTripper {
	read := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		info, err := read.NewRequestInfo(q)
		if err != nil {
			return nil, err
		}
		answer, err := next.RoundTrip(q)
		if err != nil || !info.IsResourceRequest {
			return answer, err
		}
		resource := info.Resource
		if info.Namespace != namespace {
			resource += " outside of the namespace"
		}
		r.add(right(info.Verb, info.APIGroup, resource))
		// Older servers do not begin a watch with what there is, so that it is listed first.
		if q.URL.Query().Get("sendInitialEvents") == "true" {
			r.add(right("list", info.APIGroup, resource))
		}
		// Who applies what is not there yet must also be allowed to create it.
		if info.Verb == "patch" && answer.StatusCode == http.StatusCreated {
			r.add(right("create", info.APIGroup, resource))
		}
		return answer, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// values reads and merges values files, the last one winning.
func values(t *testing.T, files ...string) map[string]any {
	t.Helper()
	merged := map[string]any{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		read, err := loader.LoadValues(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		merged = loader.MergeMaps(merged, read)
	}
	return merged
}
