{{- /* Every program of the release, as a JSON list: its values over the defaults, its kind, its id in the release. */ -}}
{{- define "afterwrite.workloads" -}}
{{- $defaults := .Values.defaults -}}
{{- $all := list (mergeOverwrite (deepCopy $defaults) (deepCopy .Values.dispatcher) (dict "kind" "dispatcher" "id" "dispatcher")) -}}
{{- $ids := list -}}
{{- range $kind, $programs := dict "provider" .Values.providers "executor" .Values.executors -}}
{{- range $i, $program := $programs -}}
{{- $id := printf "%s-%s" $kind $program.name -}}
{{- if has $id $ids -}}
{{- fail (printf "%ss[%d].name must not repeat %s" $kind $i $program.name) -}}
{{- end -}}
{{- $ids = append $ids $id -}}
{{- $all = append $all (mergeOverwrite (deepCopy $defaults) (deepCopy $program) (dict "kind" $kind "id" $id)) -}}
{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- /* A grants file, read; where it is not one, whose it is. Takes an executor's name and grants. */ -}}
{{- define "afterwrite.grants" -}}
{{- $file := fromYaml .grants -}}
{{- if or (hasKey $file "Error") (not (kindIs "string" $file.executor)) (not (kindIs "slice" $file.grants)) -}}
{{- fail (printf "grants of the executor %s must be a grants file: YAML with an executor and its grants" .name) -}}
{{- end -}}
{{- toJson $file -}}
{{- end -}}
