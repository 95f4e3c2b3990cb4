package test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = ".."
	release   = "afterwrite"
	namespace = "hooks"
	// minimal is the least that installs.
	minimal = "testdata/minimal.yaml"
	// full turns on everything that can be on at once.
	full = "testdata/full.yaml"
)

// kinds are the API types of everything that the chart may render.
var kinds = map[string]func() metav1.Object{
	"v1/ConfigMap":                            func() metav1.Object { return new(corev1.ConfigMap) },
	"v1/Service":                              func() metav1.Object { return new(corev1.Service) },
	"apps/v1/Deployment":                      func() metav1.Object { return new(appsv1.Deployment) },
	"batch/v1/Job":                            func() metav1.Object { return new(batchv1.Job) },
	"policy/v1/PodDisruptionBudget":           func() metav1.Object { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":      func() metav1.Object { return new(networkingv1.NetworkPolicy) },
	"autoscaling/v2/HorizontalPodAutoscaler":  func() metav1.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() metav1.Object { return new(monitoringv1.ServiceMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() metav1.Object { return new(monitoringv1.PrometheusRule) },
	"keda.sh/v1alpha1/ScaledObject":           func() metav1.Object { return new(ScaledObject) },
	"jetstream.nats.io/v1beta2/Stream":        func() metav1.Object { return new(Stream) },
}

// object is one rendered object, as text and decoded.
type object struct {
	kind string
	text []byte
	metav1.Object
}

func (o object) name() string { return o.kind + "/" + o.GetName() }

var chart = sync.OnceValues(func() (*chartv2.Chart, error) { return loader.LoadDir(chartDir) })

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

// templates renders what is not empty, by template.
func templates(t *testing.T, v map[string]any) (map[string]string, error) {
	t.Helper()
	c, err := chart()
	if err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	with, err := util.ToRenderValues(c, v, options, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(c, with)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(rendered, func(name, text string) bool {
		return strings.TrimSpace(text) == "" || strings.HasPrefix(filepath.Base(name), "_")
	})
	return rendered, nil
}

// render gives every object, decoded strictly, by kind and name.
func render(t *testing.T, v map[string]any) []object {
	t.Helper()
	rendered, err := templates(t, v)
	if err != nil {
		t.Fatal(err)
	}
	var objects []object
	for name, text := range rendered {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		documents := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if strings.TrimSpace(string(document)) == "" {
				continue
			}
			o, err := decode(document)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b object) int { return cmp.Compare(a.name(), b.name()) })
	return objects
}

// decode refuses a kind that is not known, and members that its type does not have, or has twice.
func decode(document []byte) (object, error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return object{}, err
	}
	kind := meta.APIVersion + "/" + meta.Kind
	build, ok := kinds[kind]
	if !ok {
		return object{}, fmt.Errorf("the chart may not render %s", kind)
	}
	o := object{kind: kind, text: document, Object: build()}
	if err := yaml.UnmarshalStrict(document, o.Object); err != nil {
		return object{}, err
	}
	if o.GetName() == "" || o.GetNamespace() != namespace {
		return object{}, fmt.Errorf("%s must have a name and the release's namespace", kind)
	}
	return o, nil
}

// ofType are the objects of an API type.
func ofType[T any](objects []object) []*T {
	var found []*T
	for _, o := range objects {
		if typed, ok := any(o.Object).(*T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// named is the one object of an API type with the name.
func named[T any](t *testing.T, objects []object, name string) *T {
	t.Helper()
	for _, o := range objects {
		if typed, ok := any(o.Object).(*T); ok && o.GetName() == name {
			return typed
		}
	}
	t.Fatalf("there is no %s %s", reflect.TypeFor[T]().Name(), name)
	return nil
}

// pod is a rendered pod template, and whose it is.
type pod struct {
	owner string
	corev1.PodTemplateSpec
}

func pods(objects []object) []pod {
	var found []pod
	for _, o := range objects {
		switch typed := o.Object.(type) {
		case *appsv1.Deployment:
			found = append(found, pod{o.name(), typed.Spec.Template})
		case *batchv1.Job:
			found = append(found, pod{o.name(), typed.Spec.Template})
		}
	}
	return found
}

// optionFiles are the values files that each set one thing, to be merged over the minimal one.
func optionFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/options/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no options: %v", err)
	}
	return files
}

// rendered is what everyCase has rendered already.
var rendered = map[string][]object{}

// everyCase runs f on what each values file renders.
func everyCase(t *testing.T, f func(t *testing.T, objects []object)) {
	t.Helper()
	cases := map[string][]string{"minimal": {minimal}, "full": {full}, "example": {"../examples/periodic-report.yaml"}}
	for _, file := range optionFiles(t) {
		cases[strings.TrimSuffix(filepath.Base(file), ".yaml")] = []string{minimal, file}
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			if _, ok := rendered[name]; !ok {
				rendered[name] = render(t, values(t, cases[name]...))
			}
			f(t, rendered[name])
		})
	}
}
