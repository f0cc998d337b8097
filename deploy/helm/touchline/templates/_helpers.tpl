{{- define "touchline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "touchline.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "touchline.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "touchline.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "touchline.selectorLabels" -}}
app.kubernetes.io/name: {{ include "touchline.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "touchline.labels" -}}
{{ include "touchline.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "touchline.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "touchline.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The settings file: the values' own settings, under what the chart itself decides. */}}
{{- define "touchline.settings" -}}
{{- $worker := dict "agent_name" .Values.livekit.agentName "deployment" .Values.livekit.deployment "slots" .Values.worker.slots
      "drain_timeout" (printf "%ds" (int .Values.worker.drainSeconds)) "full_cpu" .Values.worker.fullCPU }}
{{- $agent := dict "livekit" (dict "url" .Values.livekit.url) "worker" $worker }}
{{- if .Values.state.claim }}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}
{{- fail "state.claim: belongs to one worker; set replicaCount to 1 and autoscaling.enabled to false" }}
{{- end }}
{{- $_ := set $agent "state" (dict "path" "/var/lib/touchline/state") }}
{{- end }}
{{- $ours := dict "agent" $agent }}
{{- toYaml (mergeOverwrite (deepCopy .Values.settings) $ours) }}
{{- end }}
