package kubetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// controllers do what a cluster's controllers and nodes do of what Helm waits for, in one namespace: they create the pods
// of jobs and deployments, which admission may refuse, hold a pod back until what it mounts is there, report it as well
// from then on, and delete the pods that nobody asks for any more.
type controllers struct {
	client    kubernetes.Interface
	namespace string

	mu sync.Mutex
	// brokerRefuses makes every job fail from now on.
	brokerRefuses bool
	// ran are the jobs that ended, each as the files that its pod mounted from config maps.
	ran []map[string]string
}

// startControllers runs controllers until the test ends.
func startControllers(t *testing.T, client kubernetes.Interface) *controllers {
	t.Helper()
	c := &controllers{client: client, namespace: namespace}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				// Whatever changed while it looked, it sees when it looks again.
				err := c.reconcile(ctx)
				if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
					t.Errorf("controllers: %v", err)
					return
				}
			}
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return c
}

// jobsRan are the jobs that ended so far, the newest one last.
func (c *controllers) jobsRan() []map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ran)
}

func (c *controllers) refuse(refuses bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokerRefuses = refuses
}

func (c *controllers) reconcile(ctx context.Context) error {
	pods, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	jobs, err := c.client.BatchV1().Jobs(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployments, err := c.client.AppsV1().Deployments(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	replicaSets, err := c.client.AppsV1().ReplicaSets(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// asks is how many pods an owner wants, of those listed here.
	asks := map[types.UID]int32{}
	for i := range jobs.Items {
		asks[jobs.Items[i].UID] = 1
		if err := c.runJob(ctx, &jobs.Items[i]); err != nil {
			return err
		}
	}
	there := map[types.UID]bool{}
	for i := range deployments.Items {
		there[deployments.Items[i].UID] = true
		if err := c.rollOut(ctx, &deployments.Items[i], replicaSets.Items); err != nil {
			return err
		}
	}
	for i := range replicaSets.Items {
		set := &replicaSets.Items[i]
		if there[metav1.GetControllerOf(set).UID] {
			asks[set.UID] = *set.Spec.Replicas
		} else if err := c.client.AppsV1().ReplicaSets(c.namespace).Delete(ctx, set.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod).UID
		if asks[owner]--; asks[owner] < 0 {
			// Without a node there is nobody to wait for.
			if err := c.client.CoreV1().Pods(c.namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *controllers) runJob(ctx context.Context, job *batchv1.Job) error {
	if len(job.Status.Conditions) > 0 {
		return nil
	}
	pod := podOf(job, batchv1.SchemeGroupVersion.WithKind("Job"), job.Spec.Template, job.Name+"-"+string(job.UID[:5]))
	err := c.createPod(ctx, pod)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	refused := err
	files, mounted, err := c.mounted(ctx, pod)
	if err != nil || refused == nil && !mounted {
		return err
	}
	c.mu.Lock()
	failed := c.brokerRefuses || refused != nil
	c.mu.Unlock()

	now := metav1.Now()
	condition := func(kind batchv1.JobConditionType, reason string) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now, LastProbeTime: now}
	}
	job.Status.StartTime = &now
	if failed {
		job.Status.Failed = *job.Spec.BackoffLimit + 1
		job.Status.Conditions = []batchv1.JobCondition{
			condition(batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded),
			condition(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded),
		}
	} else {
		job.Status.Succeeded, job.Status.CompletionTime = 1, &now
		job.Status.Conditions = []batchv1.JobCondition{
			condition(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached),
			condition(batchv1.JobComplete, batchv1.JobReasonCompletionsReached),
		}
	}
	if _, err := c.client.BatchV1().Jobs(c.namespace).UpdateStatus(ctx, job, metav1.UpdateOptions{}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ran = append(c.ran, files)
	return nil
}

// rollOut replaces the replica set of an older template once every pod of the new template is there.
func (c *controllers) rollOut(ctx context.Context, d *appsv1.Deployment, sets []appsv1.ReplicaSet) error {
	set, err := c.replicaSet(ctx, d)
	if err != nil {
		return err
	}
	var created int32
	var refused error
	for i := range *d.Spec.Replicas {
		pod := podOf(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), set.Spec.Template, fmt.Sprintf("%s-%d", set.Name, i))
		if refused = c.createPod(ctx, pod); refused != nil {
			if !apierrors.IsForbidden(refused) {
				return refused
			}
			break
		}
		_, mounted, err := c.mounted(ctx, pod)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		created++
	}
	status := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: created, UpdatedReplicas: created, ReadyReplicas: created, AvailableReplicas: created,
	}
	switch {
	case refused != nil:
		// A cluster tries again until spec.progressDeadlineSeconds have passed; it ends as it ends here.
		status.UnavailableReplicas = *d.Spec.Replicas - created
		status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: refused.Error()},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"},
		}
	case created < *d.Spec.Replicas:
		status.UnavailableReplicas = *d.Spec.Replicas - created
		status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated"},
		}
	default:
		status.Conditions = []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		}
		for i := range sets {
			if metav1.IsControlledBy(&sets[i], d) && sets[i].Name != set.Name {
				if err := c.client.AppsV1().ReplicaSets(c.namespace).Delete(ctx, sets[i].Name, metav1.DeleteOptions{}); err != nil {
					return err
				}
			}
		}
	}
	if equality.Semantic.DeepEqual(d.Status, status) {
		return nil
	}
	d.Status = status
	_, err = c.client.AppsV1().Deployments(c.namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// replicaSet is that of the deployment's template, with as many replicas as it asks for.
func (c *controllers) replicaSet(ctx context.Context, d *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	data, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	hash := hex.EncodeToString(digest[:])[:10]
	set := &appsv1.ReplicaSet{}
	set.Name = d.Name + "-" + hash
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	set.Spec = appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy()}
	// By this a revision's pods are told from another's.
	set.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	set.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	set.Labels = set.Spec.Template.Labels
	sets := c.client.AppsV1().ReplicaSets(c.namespace)
	created, err := sets.Create(ctx, set, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	there, err := sets.Get(ctx, set.Name, metav1.GetOptions{})
	if err != nil || *there.Spec.Replicas == *set.Spec.Replicas {
		return there, err
	}
	there.Spec.Replicas = set.Spec.Replicas
	return sets.Update(ctx, there, metav1.UpdateOptions{})
}

func podOf(owner metav1.Object, kind schema.GroupVersionKind, template corev1.PodTemplateSpec, name string) *corev1.Pod {
	meta := *template.ObjectMeta.DeepCopy()
	meta.Name = name
	meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	return &corev1.Pod{ObjectMeta: meta, Spec: *template.Spec.DeepCopy()}
}

func (c *controllers) createPod(ctx context.Context, pod *corev1.Pod) error {
	_, err := c.client.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// mounted tells whether everything that the pod mounts is there, key by key, and what its config maps hold.
func (c *controllers) mounted(ctx context.Context, pod *corev1.Pod) (files map[string]string, ok bool, err error) {
	files = map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		var items []corev1.KeyToPath
		has := map[string]bool{}
		switch {
		case volume.ConfigMap != nil:
			m, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return nil, false, ignoreNotFound(err)
			}
			for key, text := range m.Data {
				has[key], files[key] = true, text
			}
			items = volume.ConfigMap.Items
		case volume.Secret != nil:
			s, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return nil, false, ignoreNotFound(err)
			}
			for key := range s.Data {
				has[key] = true
			}
			items = volume.Secret.Items
		default:
			return nil, false, fmt.Errorf("the pod %s mounts what no node here has: %s", pod.Name, volume.Name)
		}
		for _, item := range items {
			if !has[item.Key] {
				return nil, false, nil
			}
		}
	}
	return files, true, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
