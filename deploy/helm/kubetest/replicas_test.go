package kubetest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReplicasAreThoseOfTheValues(t *testing.T) {
	c := startCluster(t)
	startControllers(t, c.client, namespace)
	h := helmAs(t, c.kubeconfig, "installer", new(rights))
	v := values(t, testdata+"minimal.yaml")
	if err := h.install(t, v, nil); err != nil {
		t.Fatal(err)
	}
	before := c.pods(t)["dispatcher"]
	set(t, v, int64(5), "dispatcher", "replicas")
	if err := h.upgrade(t, v, true, nil); err != nil {
		t.Fatal(err)
	}
	after := c.pods(t)["dispatcher"]
	if len(before) != 2 || len(after) != 5 || before[0] != after[0] || before[1] != after[1] {
		t.Errorf("there must be three pods more than %v, and are %v", before, after)
	}
	if err := h.rollback(t, 1); err != nil {
		t.Fatal(err)
	}
	if got := c.replicas(t); got != 2 {
		t.Errorf("there are %d replicas after the rollback, not 2", got)
	}
}

func TestReplicasThatAnAutoscalerSetStay(t *testing.T) {
	for _, option := range []string{"scale_by_cpu", "scale_by_lag"} {
		t.Run(option, func(t *testing.T) {
			c := startCluster(t)
			startControllers(t, c.client, namespace)
			h := helmAs(t, c.kubeconfig, "installer", new(rights))
			v := values(t, testdata+"minimal.yaml", testdata+"options/"+option+".yaml")
			if err := h.install(t, v, nil); err != nil {
				t.Fatal(err)
			}
			deployments := c.client.AppsV1().Deployments(namespace)
			scale := must(deployments.GetScale(t.Context(), release+"-dispatcher", metav1.GetOptions{}))(t)
			scale.Spec.Replicas = 7
			must(deployments.UpdateScale(t.Context(), scale.Name, scale, metav1.UpdateOptions{}))(t)

			set(t, v, "7s", "dispatcher", "settings", "openFor")
			if err := h.upgrade(t, v, true, nil); err != nil {
				t.Fatal(err)
			}
			if got := c.replicas(t); got != 7 {
				t.Errorf("there are %d replicas after an upgrade, not 7", got)
			}
			if err := h.rollback(t, 1); err != nil {
				t.Fatal(err)
			}
			if got := c.replicas(t); got != 7 {
				t.Errorf("there are %d replicas after a rollback, not 7", got)
			}
		})
	}
}

// replicas are those that the dispatcher's deployment asks for.
func (c *cluster) replicas(t *testing.T) int32 {
	t.Helper()
	return *must(c.client.AppsV1().Deployments(namespace).Get(t.Context(), release+"-dispatcher", metav1.GetOptions{}))(t).Spec.Replicas
}
