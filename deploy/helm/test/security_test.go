package test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// What Pod Security "restricted" asks, and what it does not: no token, no writing, no limitless memory.
func TestEveryPodIsHeldToTheLeast(t *testing.T) {
	everyCase(t, func(t *testing.T, objects []object) {
		for _, p := range pods(objects) {
			must := func(ok bool, what string) {
				t.Helper()
				if !ok {
					t.Errorf("%s %s", p.owner, what)
				}
			}
			spec := p.Spec
			must(isFalse(spec.AutomountServiceAccountToken), "must not mount a token")
			must(isFalse(spec.EnableServiceLinks), "must not be told of other services")
			must(!spec.HostNetwork && !spec.HostPID && !spec.HostIPC, "must not share the host's namespaces")
			must(len(spec.InitContainers)+len(spec.EphemeralContainers) == 0 && len(spec.Containers) == 1, "must hold one container")
			security := spec.SecurityContext
			must(security != nil && isTrue(security.RunAsNonRoot), "must not run as root")
			must(security.RunAsUser == nil || *security.RunAsUser > 0, "must have a user that is not root")
			must(security.SeccompProfile != nil && security.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "must have the runtime's seccomp profile")
			for _, volume := range spec.Volumes {
				must(volume.ConfigMap != nil || volume.Secret != nil, "must mount nothing but config maps and secrets: "+volume.Name)
				must(volume.Secret == nil || *volume.Secret.DefaultMode == 0o440 && len(volume.Secret.Items) > 0,
					"must mount only the keys it uses, for its group to read: "+volume.Name)
			}
			c := spec.Containers[0]
			must(c.SecurityContext != nil, "must have a security context")
			must(isFalse(c.SecurityContext.AllowPrivilegeEscalation), "must not gain privileges")
			must(isTrue(c.SecurityContext.ReadOnlyRootFilesystem), "must not write to its root")
			must(c.SecurityContext.Capabilities != nil && len(c.SecurityContext.Capabilities.Add) == 0 &&
				slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}), "must have no capabilities")
			must(c.SecurityContext.Privileged == nil && c.SecurityContext.ProcMount == nil, "must not ask for more")
			must(!c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero() && !c.Resources.Limits.Memory().IsZero(),
				"must say how much it needs, and at most takes")
			for _, mount := range c.VolumeMounts {
				must(mount.ReadOnly, "must mount to read only: "+mount.Name)
			}
			for _, variable := range c.Env {
				must(!strings.Contains(variable.Value, "@"), "must not be given a password: "+variable.Name)
			}
			must(!strings.HasSuffix(c.Image, ":latest") && strings.ContainsAny(c.Image, ":@"), "must run a version that was chosen: "+c.Image)
		}
	})
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

func TestAProgramStopsInItsOwnTimeAndOneAtATime(t *testing.T) {
	everyCase(t, func(t *testing.T, objects []object) {
		budgets := ofType[policyv1.PodDisruptionBudget](objects)
		for _, d := range ofType[appsv1.Deployment](objects) {
			c := d.Spec.Template.Spec.Containers[0]
			drain := variable(c, "AFTERWRITE_STOP_GRACE") + variable(c, "AFTERWRITE_DRAIN_TIMEOUT")
			if grace := *d.Spec.Template.Spec.TerminationGracePeriodSeconds; seconds(t, drain)+10 > grace {
				t.Errorf("%s drains for %s and is killed after %d s", d.Name, drain, grace)
			}
			rolling := d.Spec.Strategy.RollingUpdate
			if rolling == nil || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() != 1 {
				t.Errorf("%s must be replaced one by one, the new one first", d.Name)
			}
			for _, b := range budgets {
				if b.Name == d.Name && !selects(t, b.Spec.Selector, d.Spec.Template.Labels) {
					t.Errorf("the disruption budget of %s does not select its pods", d.Name)
				}
			}
			if named := func(b *policyv1.PodDisruptionBudget) bool { return b.Name == d.Name }; len(budgets) > 0 && !slices.ContainsFunc(budgets, named) {
				t.Errorf("%s has no disruption budget", d.Name)
			}
			for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
				if !selects(t, spread.LabelSelector, d.Spec.Template.Labels) {
					t.Errorf("%s spreads over %s the pods of another", d.Name, spread.TopologyKey)
				}
			}
		}
	})
}

func TestAProgramSelectsItsOwnPodsAndNobodyElses(t *testing.T) {
	everyCase(t, func(t *testing.T, objects []object) {
		for _, d := range ofType[appsv1.Deployment](objects) {
			for _, p := range pods(objects) {
				own := p.owner == "apps/v1/Deployment/"+d.Name
				if selects(t, d.Spec.Selector, p.Labels) != own {
					t.Errorf("%s must select its own pods only; those of %s: %t", d.Name, p.owner, !own)
				}
			}
		}
		for _, s := range ofType[corev1.Service](objects) {
			d := named[appsv1.Deployment](t, objects, s.Name)
			if !selects(t, &metav1.LabelSelector{MatchLabels: s.Spec.Selector}, d.Spec.Template.Labels) || s.Spec.ClusterIP != corev1.ClusterIPNone {
				t.Errorf("the service %s must be headless, of its program's pods", s.Name)
			}
		}
	})
}

// Whatever has a port is probed there; nothing else listens.
func TestWhoListensIsProbed(t *testing.T) {
	everyCase(t, func(t *testing.T, objects []object) {
		for _, p := range pods(objects) {
			c := p.Spec.Containers[0]
			listens := variable(c, "AFTERWRITE_LISTEN") != ""
			probed := c.StartupProbe != nil && c.LivenessProbe != nil && c.ReadinessProbe != nil
			if listens != probed || listens != (len(c.Ports) == 1) {
				t.Errorf("%s listens: %t, is probed: %t, has %d ports", p.owner, listens, probed, len(c.Ports))
			}
			if probed && (c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != readiness[c.Name]) {
				t.Errorf("%s must be asked /livez whether it hangs, and %s whether it takes work", p.owner, readiness[c.Name])
			}
		}
	})
}

// readiness is what a rollout asks. It leaves out the conditions about work that waits: a new pod sees what the old one
// sees, and the rollout, which may be what mends them, would wait for them. All others are the pod's own.
var readiness = map[string]string{
	"dispatcher": "/readyz?exclude=receipts_aging&exclude=stream_filling",
	"executor":   "/readyz?exclude=intents_aging&exclude=stream_filling",
	"provider":   "/readyz",
}

func TestThePolicyLetsEveryPodReachTheBrokerAndDNSOnly(t *testing.T) {
	objects := render(t, values(t, full))
	policy := named[networkingv1.NetworkPolicy](t, objects, "afterwrite")
	for _, p := range pods(objects) {
		if !selects(t, &policy.Spec.PodSelector, p.Labels) {
			t.Errorf("the policy does not select %s", p.owner)
		}
	}
	var reached []int
	for _, rule := range policy.Spec.Egress {
		if len(rule.To) == 0 {
			t.Error("an egress rule without peers lets pods reach everything")
		}
		for _, port := range rule.Ports {
			reached = append(reached, port.Port.IntValue())
		}
	}
	if !slices.Equal(reached, []int{53, 53, 4443}) {
		t.Errorf("ports that pods may reach: %v", reached)
	}
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) != 1 || rule.Ports[0].Port.String() != "http" {
			t.Errorf("ingress must be of scrapers, for metrics only: %+v", rule)
		}
	}
	types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if !slices.Equal(policy.Spec.PolicyTypes, types) {
		t.Errorf("the policy must hold for both directions, not for %v", policy.Spec.PolicyTypes)
	}
}

func selects(t *testing.T, selector *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return !parsed.Empty() && parsed.Matches(labels.Set(of))
}

// variable is the value that a container is given, empty if it is not.
func variable(c corev1.Container, name string) string {
	for _, v := range c.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

func seconds(t *testing.T, duration string) int64 {
	t.Helper()
	d, err := time.ParseDuration(duration)
	if err != nil {
		t.Fatal(err)
	}
	return int64(d.Seconds())
}
