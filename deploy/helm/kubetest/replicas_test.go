package kubetest

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReplicasAreThoseOfTheValues(t *testing.T) {
	c := startCluster(t)
	h := c.installer(t)
	v := values(t, testdata+"minimal.yaml")
	if err := h.install(t, v); err != nil {
		t.Fatal(err)
	}
	before := c.pods(t)["dispatcher"]
	set(t, v, int64(5), "dispatcher", "replicas")
	if err := h.upgrade(t, v); err != nil {
		t.Fatal(err)
	}
	after := c.pods(t)["dispatcher"]
	if len(before) != 2 || len(after) != 5 || !slices.Equal(before, after[:2]) {
		t.Errorf("there must be three pods more than %v, and are %v", before, after)
	}
	if err := h.rollback(t, 1); err != nil {
		t.Fatal(err)
	}
	if left := c.pods(t)["dispatcher"]; !slices.Equal(left, before) {
		t.Errorf("after the rollback there must be %v, and are %v", before, left)
	}
}

func TestReplicasThatAnAutoscalerSetStay(t *testing.T) {
	for _, option := range []string{"scale_by_cpu", "scale_by_lag"} {
		t.Run(option, func(t *testing.T) {
			c := startCluster(t)
			h := c.installer(t)
			v := values(t, testdata+"minimal.yaml", testdata+"options/"+option+".yaml")
			if err := h.install(t, v); err != nil {
				t.Fatal(err)
			}
			c.scale(t, 7)
			set(t, v, "7s", "dispatcher", "settings", "openFor")
			if err := h.upgrade(t, v); err != nil {
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

// Helm applies what it renders, and does not take from others what they have set since.
func TestReplicasSetByHandAreNotUndoneUnlessForced(t *testing.T) {
	c := startCluster(t)
	h := c.installer(t)
	v := values(t, testdata+"minimal.yaml")
	if err := h.install(t, v); err != nil {
		t.Fatal(err)
	}
	c.scale(t, 5)
	if err := h.upgrade(t, v); err == nil || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("got %v", err)
	}
	if got := c.replicas(t); got != 5 {
		t.Errorf("there are %d replicas, not 5", got)
	}
	if err := h.upgrade(t, v, forceConflicts); err != nil {
		t.Fatal(err)
	}
	if got := c.replicas(t); got != 2 {
		t.Errorf("there are %d replicas, not 2", got)
	}
}

// A number that only Helm has set goes with it, and the default is one replica. One that was set by hand stays until the
// autoscaler sets its own.
func TestAnAutoscalerTakesOverFromReplicasSetByHand(t *testing.T) {
	c := startCluster(t)
	h := c.installer(t)
	fixed, scaled := values(t, testdata+"minimal.yaml"), values(t, testdata+"minimal.yaml", testdata+"options/scale_by_cpu.yaml")
	if err := h.install(t, fixed); err != nil {
		t.Fatal(err)
	}
	c.scale(t, 3)
	if err := h.upgrade(t, scaled); err != nil {
		t.Fatal(err)
	}
	if got := c.replicas(t); got != 3 {
		t.Errorf("there are %d replicas, not 3", got)
	}
	c.scale(t, 6)
	if err := h.upgrade(t, fixed); err == nil || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Errorf("got %v", err)
	}
	if got := c.replicas(t); got != 6 {
		t.Errorf("there are %d replicas, not 6", got)
	}
	if err := h.upgrade(t, fixed, forceConflicts); err != nil {
		t.Fatal(err)
	}
	if got := c.replicas(t); got != 2 {
		t.Errorf("there are %d replicas, not 2", got)
	}
}

// scale sets the replicas of the dispatcher's deployment, as an autoscaler or a person does.
func (c *cluster) scale(t *testing.T, replicas int32) {
	t.Helper()
	deployments := c.client.AppsV1().Deployments(namespace)
	scale := must(deployments.GetScale(t.Context(), release+"-dispatcher", metav1.GetOptions{}))(t)
	scale.Spec.Replicas = replicas
	must(deployments.UpdateScale(t.Context(), scale.Name, scale, metav1.UpdateOptions{}))(t)
}

// replicas are those that the dispatcher's deployment asks for.
func (c *cluster) replicas(t *testing.T) int32 {
	t.Helper()
	return *must(c.client.AppsV1().Deployments(namespace).Get(t.Context(), release+"-dispatcher", metav1.GetOptions{}))(t).Spec.Replicas
}
