package test

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ScaledObject is what the chart uses of KEDA's.
type ScaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int32 `json:"minReplicaCount"`
		MaxReplicaCount int32 `json:"maxReplicaCount"`
		Triggers        []struct {
			Type string `json:"type"`
			// Every value must be a string.
			Metadata struct {
				Endpoint     string `json:"natsServerMonitoringEndpoint"`
				Account      string `json:"account"`
				UseHTTPS     string `json:"useHttps"`
				Stream       string `json:"stream"`
				Consumer     string `json:"consumer"`
				LagThreshold string `json:"lagThreshold"`
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// Stream is what the chart uses of the stream of the NATS controllers for Kubernetes.
type Stream struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Account           string   `json:"account"`
		AllowDirect       bool     `json:"allowDirect"`
		AllowMsgSchedules bool     `json:"allowMsgSchedules"`
		AllowRollup       bool     `json:"allowRollup"`
		DenyDelete        bool     `json:"denyDelete"`
		DenyPurge         bool     `json:"denyPurge"`
		Description       string   `json:"description"`
		Discard           string   `json:"discard"`
		DuplicateWindow   string   `json:"duplicateWindow"`
		MaxAge            string   `json:"maxAge"`
		MaxBytes          int64    `json:"maxBytes"`
		MaxMsgsPerSubject int64    `json:"maxMsgsPerSubject"`
		Name              string   `json:"name"`
		PreventDelete     bool     `json:"preventDelete"`
		Replicas          int      `json:"replicas"`
		Retention         string   `json:"retention"`
		Storage           string   `json:"storage"`
		Subjects          []string `json:"subjects"`
	} `json:"spec"`
}
