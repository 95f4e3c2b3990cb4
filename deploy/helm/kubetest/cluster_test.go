package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// cluster is an API server with controllers, and with what an operator has prepared: the namespace, the kinds of other
// projects, the secrets that the values of the tests name, and the installer's role.
type cluster struct {
	kubeconfig  string
	client      kubernetes.Interface
	objects     dynamic.Interface
	controllers *controllers
	role        *rbacv1.Role
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	kubeconfig := startServer(t)
	config := as(t, kubeconfig, "admin")
	c := &cluster{kubeconfig: kubeconfig, client: must(kubernetes.NewForConfig(config))(t), objects: must(dynamic.NewForConfig(config))(t)}
	ctx := t.Context()

	labels := map[string]string{}
	for _, mode := range []string{"enforce", "warn", "audit"} {
		labels["pod-security.kubernetes.io/"+mode] = "restricted"
		labels["pod-security.kubernetes.io/"+mode+"-version"] = "latest"
	}
	must(c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}, metav1.CreateOptions{}))(t)
	// The options of scheduling ask for them.
	for _, name := range []string{"high", "hooks"} {
		must(c.client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	// A controller creates the first one in a cluster.
	for _, name := range []string{"default", "hooks"} {
		must(c.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	for name, keys := range map[string][]string{
		"broker-ca": {"ca.crt", "ca.pem"}, "client-tls": {"tls.crt", "tls.key"}, "operator-tls": {"tls.crt", "tls.key"},
		"operator": {"operator.creds"}, "dispatcher": {"seed"}, "inventory": {"nats.creds"}, "recounts": {"nats.creds"},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{}}
		for _, key := range keys {
			secret.StringData[key] = "of the operator"
		}
		must(c.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}))(t)
	}
	c.role = new(rbacv1.Role)
	if err := yaml.UnmarshalStrict(must(os.ReadFile("../examples/installer-role.yaml"))(t), c.role); err != nil {
		t.Fatal(err)
	}
	must(c.client.RbacV1().Roles(namespace).Create(ctx, c.role, metav1.CreateOptions{}))(t)
	must(c.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: c.role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "installer"}},
	}, metav1.CreateOptions{}))(t)
	c.defineKinds(t)
	c.controllers = startControllers(t, c.client)
	return c
}

// must is v of a call that may not fail.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// defineKinds creates the kinds of other projects that the chart may use, by the definitions that those publish, and
// waits until they are served.
func (c *cluster) defineKinds(t *testing.T) {
	t.Helper()
	files := must(filepath.Glob("testdata/crds/*.yaml"))(t)
	definitions := c.objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, file := range files {
		for _, definition := range documents(t, must(os.ReadFile(file))(t)) {
			must(definitions.Create(t.Context(), definition, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}))(t)
		}
	}
	eventually(t, "every kind is served", func(ctx context.Context) error {
		all, err := definitions.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		lists, err := c.client.Discovery().ServerPreferredResources()
		if err != nil {
			return err
		}
		served := map[string]bool{}
		for _, list := range lists {
			for _, resource := range list.APIResources {
				served[resource.Name+"."+must(schema.ParseGroupVersion(list.GroupVersion))(t).Group] = true
			}
		}
		for _, definition := range all.Items {
			// A definition is named by its resource and group.
			if !served[definition.GetName()] {
				return fmt.Errorf("%s is not served", definition.GetName())
			}
		}
		return nil
	})
}

// eventually waits until nothing is wrong any more.
func eventually(t *testing.T, what string, wrong func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := wrong(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-again.C:
		}
	}
}

// documents are the objects in a file.
func documents(t *testing.T, data []byte) []*unstructured.Unstructured {
	t.Helper()
	reader := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var all []*unstructured.Unstructured
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text := must(yaml.YAMLToJSON(document))(t)
		if string(text) == "null" {
			continue
		}
		o := new(unstructured.Unstructured)
		if err := o.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

func key(o *unstructured.Unstructured) string {
	return o.GetAPIVersion() + "/" + o.GetKind() + "/" + o.GetName()
}

// live is everything that is in the namespace, by key, but for events.
func (c *cluster) live(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	for _, list := range must(c.client.Discovery().ServerPreferredResources())(t) {
		version := must(schema.ParseGroupVersion(list.GroupVersion))(t)
		for _, resource := range list.APIResources {
			if !resource.Namespaced || !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			all := must(c.objects.Resource(version.WithResource(resource.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{}))(t)
			for i := range all.Items {
				found[key(&all.Items[i])] = &all.Items[i]
			}
		}
	}
	return found
}

// released is what is of the release: neither the records that Helm keeps of it, nor what controllers created, nor what
// was there before.
func (c *cluster) released(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	found := c.live(t)
	maps.DeleteFunc(found, func(_ string, o *unstructured.Unstructured) bool {
		return metav1.GetControllerOf(o) != nil || o.GetLabels()["app.kubernetes.io/instance"] != release
	})
	return found
}

// pods are the names of the pods that there are, by the program that runs in them, once there are as many as are asked for.
func (c *cluster) pods(t *testing.T) map[string][]string {
	t.Helper()
	var all map[string][]string
	eventually(t, "there are as many pods as are asked for", func(ctx context.Context) error {
		deployments, err := c.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		jobs, err := c.client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		asked := len(jobs.Items)
		for i := range deployments.Items {
			asked += int(*deployments.Items[i].Spec.Replicas)
		}
		all = map[string][]string{}
		for i := range pods.Items {
			program := pods.Items[i].Labels["app.kubernetes.io/component"]
			all[program] = append(all[program], pods.Items[i].Name)
		}
		if len(pods.Items) != asked {
			return fmt.Errorf("%d are asked for, there are %v", asked, all)
		}
		return nil
	})
	return all
}

// content is what objects say, without what the API server writes beside it.
func content(objects map[string]*unstructured.Unstructured) map[string]any {
	all := map[string]any{}
	for key, o := range objects {
		said := o.DeepCopy().Object
		delete(said, "status")
		meta, _ := said["metadata"].(map[string]any)
		maps.DeleteFunc(meta, func(member string, _ any) bool {
			return !slices.Contains([]string{"annotations", "finalizers", "labels", "ownerReferences"}, member)
		})
		all[key] = said
	}
	return all
}

func names[T any](objects map[string]T) []string { return slices.Sorted(maps.Keys(objects)) }
