{{- define "weir.name" -}}
{{- $name := ternary .Release.Name (printf "%s-weir" .Release.Name) (contains "weir" .Release.Name) -}}
{{- trunc 48 $name | trimSuffix "-" -}}
{{- end }}

{{/* Both take (dict "root" $ "part" "edge"). */}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir-{{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "weir.image" -}}
{{- with .Values.image -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "weir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "weir.goMemoryLimit" -}}
{name: GOMEMLIMIT, value: {{ div (mul .memoryMiB 9) 10 }}MiB}
{{- end }}

{{- define "weir.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
Pods of the previous revision do not count, so that a rolling update fits on few machines.
Takes (dict "selector" … "zones" … "hosts" …).
*/}}
{{- define "weir.spread" -}}
{{- range $key, $unsatisfiable := dict "topology.kubernetes.io/zone" .zones "kubernetes.io/hostname" .hosts }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: {{ $unsatisfiable }}
  labelSelector:
    matchLabels: {{- $.selector | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
