{{- /* Names end with a program's, "executor-" and 25 characters at most, and a service's name has 63. */ -}}
{{- define "afterwrite.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "afterwrite.fullname" -}}
{{- $name := include "afterwrite.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 28 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 28 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 28 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Of everything in the release. */ -}}
{{- define "afterwrite.releaseLabels" -}}
app.kubernetes.io/name: {{ include "afterwrite.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Of a program's pods, for good: a selector cannot be changed. Takes root and id. */ -}}
{{- define "afterwrite.selectorLabels" -}}
{{ include "afterwrite.releaseLabels" .root }}
app.kubernetes.io/component: {{ .id }}
{{- end -}}

{{- /* Without the chart's version: a new chart alone restarts nothing. */ -}}
{{- define "afterwrite.podLabels" -}}
{{ include "afterwrite.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: afterwrite
{{- end -}}

{{- define "afterwrite.labels" -}}
{{ include "afterwrite.podLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Takes root and image. */ -}}
{{- define "afterwrite.image" -}}
{{- if contains "/" .image -}}
{{- .image -}}
{{- else -}}
{{- with .root.Values.image -}}
{{- printf "%s/%s:%s" .registry $.image (.tag | default $.root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The consumer of intents that an executor has for a kind. Takes executor and kind. */ -}}
{{- define "afterwrite.executorConsumer" -}}
{{- printf "%s--%s" .executor .kind | replace "." "-" -}}
{{- end -}}

{{- /* A size with its unit, in bytes. */ -}}
{{- define "afterwrite.bytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $factor := dict "TiB" 1099511627776 "GiB" 1073741824 "MiB" 1048576 "KiB" 1024 "B" 1 "" 1 -}}
{{- mul $number (get $factor (regexFind "[A-Za-z]+$" .)) -}}
{{- end -}}
