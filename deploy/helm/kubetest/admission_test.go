package kubetest

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// The API server checks, field by field, what each option renders, and the pods that would come of it, but keeps nothing.
func TestEveryOptionIsAdmittedWithoutAWarning(t *testing.T) {
	a := startAdmission(t)
	cases := map[string][]string{
		"minimal": {testdata + "minimal.yaml"}, "full": {testdata + "full.yaml"}, "example": {"../examples/periodic-report.yaml"},
	}
	options := must(filepath.Glob(testdata + "options/*.yaml"))(t)
	if len(options) == 0 {
		t.Fatal("there are no options")
	}
	for _, file := range options {
		cases[strings.TrimSuffix(filepath.Base(file), ".yaml")] = []string{testdata + "minimal.yaml", file}
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			for _, o := range render(t, values(t, files...)) {
				if err := a.admit(t, o); err != nil {
					t.Errorf("%s: %v", key(o), err)
				}
				if pod := podFrom(t, o); pod != nil {
					if err := a.admit(t, pod); err != nil {
						t.Errorf("the pods of %s: %v", key(o), err)
					}
				}
			}
			for _, warning := range a.warnings.take() {
				t.Errorf("the API server warns: %s", warning)
			}
		})
	}
}

// Without this, the tests above would pass on a server that admits anything.
func TestWhatIsNotRestrictedIsRefused(t *testing.T) {
	a := startAdmission(t)
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		says   string
	}{
		"privileged": {func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
			p.Containers[0].SecurityContext.Privileged = new(true)
		}, "privileged"},
		"root":               {func(p *corev1.PodSpec) { p.SecurityContext.RunAsUser = new(int64) }, "runAsUser=0"},
		"may become root":    {func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil }, "runAsNonRoot != true"},
		"gains privileges":   {func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil }, "allowPrivilegeEscalation != false"},
		"has capabilities":   {func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities = nil }, "unrestricted capabilities"},
		"any system call":    {func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil }, "seccompProfile"},
		"the host's network": {func(p *corev1.PodSpec) { p.HostNetwork = true }, "hostNetwork=true"},
		"the host's files": {func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}, "hostPath"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range render(t, values(t, testdata+"minimal.yaml")) {
				u := podFrom(t, o)
				if u == nil {
					continue
				}
				pod := new(corev1.Pod)
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
					t.Fatal(err)
				}
				c.change(&pod.Spec)
				changed := must(runtime.DefaultUnstructuredConverter.ToUnstructured(pod))(t)
				err := a.admit(t, &unstructured.Unstructured{Object: changed})
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("a pod of %s: got %v", key(o), err)
				}
			}
		})
	}
}

func TestAnUnknownFieldIsRefusedInEveryKind(t *testing.T) {
	a := startAdmission(t)
	seen := map[string]bool{}
	for _, files := range [][]string{{testdata + "full.yaml"}, {testdata + "minimal.yaml", testdata + "options/streams_by_nack.yaml"}} {
		for _, o := range render(t, values(t, files...)) {
			if seen[o.GetKind()] {
				continue
			}
			seen[o.GetKind()] = true
			at := []string{"spec", "unheardOf"}
			if _, ok := o.Object["spec"]; !ok {
				at = at[1:]
			}
			set(t, o.Object, "of", at...)
			if err := a.admit(t, o); err == nil || !strings.Contains(err.Error(), `unknown field "`+strings.Join(at, ".")+`"`) {
				t.Errorf("%s: got %v", o.GetKind(), err)
			}
		}
	}
	want := []string{
		"ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Job", "NetworkPolicy", "PodDisruptionBudget", "PrometheusRule",
		"ScaledObject", "Service", "ServiceMonitor", "Stream",
	}
	if got := names(seen); !slices.Equal(got, want) {
		t.Errorf("the chart renders %v, not %v", got, want)
	}
}

// Helm asks for the same strictness, so that a misspelled field of a template can not be installed.
func TestHelmRefusesAnUnknownFieldAndInstallsNothing(t *testing.T) {
	c := startCluster(t)
	h := c.installer(t)
	err := h.install(t, values(t, testdata+"minimal.yaml"), func(i *action.Install) {
		i.PostRenderer = replacing("maxUnavailable: 1", "maximumUnavailable: 1")
	})
	if err == nil || !strings.Contains(err.Error(), "maximumUnavailable") {
		t.Errorf("got %v", err)
	}
	if there := c.released(t); len(there) > 0 {
		t.Errorf("there is %v", names(there))
	}
}

// admission asks the API server whether it would take an object, and keeps what it warns of.
type admission struct {
	objects  dynamic.Interface
	mapper   meta.RESTMapper
	warnings *warnings
}

func startAdmission(t *testing.T) *admission {
	t.Helper()
	c := startCluster(t)
	heard := new(warnings)
	config := as(t, c.kubeconfig, "admin")
	config.WarningHandler = heard
	groups := must(restmapper.GetAPIGroupResources(c.client.Discovery()))(t)
	return &admission{must(dynamic.NewForConfig(config))(t), restmapper.NewDiscoveryRESTMapper(groups), heard}
}

func (a *admission) admit(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	kind := o.GroupVersionKind()
	mapping := must(a.mapper.RESTMapping(kind.GroupKind(), kind.Version))(t)
	_, err := a.objects.Resource(mapping.Resource).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}

// render gives what Helm would send for the values, hooks included.
func render(t *testing.T, v map[string]any) []*unstructured.Unstructured {
	t.Helper()
	c := chart(t)
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	with := must(util.ToRenderValues(c, v, options, nil))(t)
	var all []*unstructured.Unstructured
	for name, text := range must(engine.Render(c, with))(t) {
		if filepath.Ext(name) == ".yaml" {
			all = append(all, documents(t, []byte(text))...)
		}
	}
	return all
}

// podFrom is the pod that a job or a deployment would have, and nil for other kinds.
func podFrom(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	kinds := []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), batchv1.SchemeGroupVersion.WithKind("Job")}
	if !slices.Contains(kinds, o.GroupVersionKind()) {
		return nil
	}
	template, ok, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil || !ok {
		t.Fatal(errors.Join(err, errors.New(key(o)+" has no template")))
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName("pod")
	return pod
}
