{{- define "windlass.name" -}}
{{- if contains "windlass" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-windlass" .Release.Name }}{{ end -}}
{{- end }}

{{- define "windlass.account" -}}
{{- .Values.serviceAccount.name | default (include "windlass.name" .) -}}
{{- end }}

{{- define "windlass.selector" -}}
app.kubernetes.io/name: windlass
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "windlass.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Those of deploy/rbac, which are what the operator uses and no more. */ -}}
{{- define "windlass.rules" -}}
{{ .files.Get (printf "files/%s.yaml" .part) | regexFind "(?s)\nrules:\n.*?\n---" | trimPrefix "\nrules:\n" | trimSuffix "\n---" }}
{{- end }}

{{- /* The Secret whose token monitors send; empty: there is none. */ -}}
{{- define "windlass.tokenSecret" -}}
{{- with .Values.metrics.tokenSecret -}}
{{- .name | default (ternary (printf "%s-metrics-reader" (include "windlass.name" $)) "" .create) -}}
{{- end -}}
{{- end }}

{{- define "windlass.authorization" -}}
authorization:
  type: Bearer
  credentials:
    name: {{ include "windlass.tokenSecret" . }}
    key: {{ .Values.metrics.tokenSecret.key }}
{{- end }}
