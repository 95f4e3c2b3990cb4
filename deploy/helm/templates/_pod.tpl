{{- /* Settings as variables: receiptsAge is AFTERWRITE_RECEIPTS_AGE. Null is the program's default. */ -}}
{{- define "afterwrite.settings" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) }}
- name: AFTERWRITE_{{ $key | snakecase | upper }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* How a program reaches the broker, and as whom. Takes root and the program. */ -}}
{{- define "afterwrite.brokerEnv" -}}
- name: AFTERWRITE_NATS_URL
  value: {{ .root.Values.nats.url | quote }}
{{- with .program.credentials }}{{ if .secret }}
- name: AFTERWRITE_NATS_{{ .kind | upper }}
  value: /etc/afterwrite/credentials/{{ .key }}
{{- end }}{{ end }}
{{- with .root.Values.nats.ca }}{{ if .secret }}
- name: AFTERWRITE_NATS_CA
  value: /etc/afterwrite/ca/{{ .key }}
{{- end }}{{ end }}
{{- if .program.certificate.secret }}
- name: AFTERWRITE_NATS_CERT
  value: /etc/afterwrite/certificate/tls.crt
- name: AFTERWRITE_NATS_KEY
  value: /etc/afterwrite/certificate/tls.key
{{- end }}
{{- end -}}

{{- define "afterwrite.brokerMounts" -}}
{{- if .program.credentials.secret }}
- {name: credentials, mountPath: /etc/afterwrite/credentials, readOnly: true}
{{- end }}
{{- if .root.Values.nats.ca.secret }}
- {name: ca, mountPath: /etc/afterwrite/ca, readOnly: true}
{{- end }}
{{- if .program.certificate.secret }}
- {name: certificate, mountPath: /etc/afterwrite/certificate, readOnly: true}
{{- end }}
{{- end -}}

{{- /* Only the keys that are used, readable by the process's group and nobody else. */ -}}
{{- define "afterwrite.brokerVolumes" -}}
{{- with .program.credentials }}{{ if .secret }}
- name: credentials
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: {{ .key }}}]
{{- end }}{{ end }}
{{- with .root.Values.nats.ca }}{{ if .secret }}
- name: ca
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: {{ .key }}}]
{{- end }}{{ end }}
{{- with .program.certificate.secret }}
- name: certificate
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}
{{- end -}}

{{- define "afterwrite.installedEnv" -}}
- name: AFTERWRITE_HOOKS
  value: /etc/afterwrite/hooks
- name: AFTERWRITE_PROFILES
  value: /etc/afterwrite/profiles/profiles.yaml
{{- include "afterwrite.settings" .Values.streams.settings }}
{{- end -}}

{{- define "afterwrite.installedMounts" }}
- {name: hooks, mountPath: /etc/afterwrite/hooks, readOnly: true}
- {name: profiles, mountPath: /etc/afterwrite/profiles, readOnly: true}
{{- end -}}

{{- /* Takes root and the name of the config map. */ -}}
{{- define "afterwrite.installedVolumes" }}
- name: hooks
  configMap:
    name: {{ .configMap }}
    items:
      {{- range $name := keys .root.Values.hooks | sortAlpha }}
      - {key: {{ $name }}, path: {{ $name }}}
      {{- end }}
- name: profiles
  configMap:
    name: {{ .configMap }}
    items: [{key: profiles, path: profiles.yaml}]
{{- end -}}

{{- /* The hook files and the profiles file: no hook file has a name without an ending. */ -}}
{{- define "afterwrite.installedData" -}}
{{- toYaml (merge (dict "profiles" .Values.profiles) .Values.hooks) -}}
{{- end -}}

{{- /* What every pod is held to: Pod Security "restricted", and no token. Takes root and the program. */ -}}
{{- define "afterwrite.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .root.Values.runAs.user }}
  runAsUser: {{ int64 . }}
  {{- end }}
  {{- with .root.Values.runAs.group }}
  runAsGroup: {{ int64 . }}
  fsGroup: {{ int64 . }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "afterwrite.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Where a pod may run. Takes root and the program. */ -}}
{{- define "afterwrite.scheduling" -}}
{{- with .program.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .program.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
