{{/* The configuration that the values make, without config. */}}
{{- define "weir.edge.base" -}}
{{- $v := .Values }}
{{- $consul := eq $v.rules.source "consul" }}
node: {{ toJson $v.node }}
listen:
  public: ":8080"
  admin: ":8081"
  admin_token_file: /etc/weir-secrets/admin/token
  {{- if $v.admin.tlsSecret }}
  admin_tls: {cert_file: /etc/weir-secrets/admin/tls.crt, key_file: /etc/weir-secrets/admin/tls.key}
  {{- end }}
  {{- if $v.tls.secret }}
  tls: {cert_file: /etc/weir-secrets/tls/tls.crt, key_file: /etc/weir-secrets/tls/tls.key}
  http2: {tls: true}
  {{- end }}
  {{- range $name, $port := include "weir.gateways" . | fromYaml }}
  {{- $gateway := get $v.gateways $name }}
  {{ $name }}:
    address: ":{{ $port }}"
    {{- with $gateway.from }}
    from: {{ toJson . }}
    {{- end }}
    {{- if $gateway.tlsSecret }}
    {{- $dir := printf "/etc/weir-secrets/%s" $name }}
    tls: {cert_file: {{ $dir }}/tls.crt, key_file: {{ $dir }}/tls.key, client_ca_file: {{ $dir }}/ca.crt}
    {{- end }}
    {{- if $gateway.authorization }}
    authorization: true
    {{- end }}
  {{- end }}
  {{- if $v.peer.tlsSecret }}
  {{- $dir := "/etc/weir-secrets/peer" }}
  peer:
    address: ":8444"
    advertise: POD_IP
    tls: {cert_file: {{ $dir }}/tls.crt, key_file: {{ $dir }}/tls.key, ca_file: {{ $dir }}/ca.crt}
  {{- end }}
upstreams: {{ toJson $v.upstreams }}
store:
  {{- if not $consul }}
  nodes: {{ ternary $v.autoscaling.maxReplicas $v.replicas $v.autoscaling.enabled | int }}
  {{- end }}
  {{- if $v.redis.trial }}
  redis: {mode: single, addrs: ["{{ include "weir.name" . }}-redis:6379"]}
  {{- else }}
  {{- with $v.redis }}
  redis:
    mode: {{ .mode }}
    addrs: {{ toJson .addrs }}
    {{- with .masterName }}
    master_name: {{ toJson . }}
    {{- end }}
    {{- with .username }}
    username: {{ toJson . }}
    {{- end }}
    {{- if .passwordSecret.name }}
    password_file: /etc/weir-secrets/redis/password
    {{- end }}
    {{- with .sentinelUsername }}
    sentinel_username: {{ toJson . }}
    {{- end }}
    {{- if .sentinelPasswordSecret.name }}
    sentinel_password_file: /etc/weir-secrets/redis/sentinel-password
    {{- end }}
    {{- if .tls }}
    tls: {{ ternary (dict "ca_file" "/etc/weir-secrets/redis/ca.crt") dict (ne .caSecret.name "") | toJson }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- if $consul }}
rules: {source: consul, cache: /var/lib/weir/rules.json}
policy: {source: consul}
consul:
  addr: {{ toJson $v.consul.addr }}
  advertise: POD_IP
  advertise_admin: POD_IP
  {{- if $v.consul.tokenSecret.name }}
  token_file: /etc/weir-secrets/consul/token
  {{- end }}
{{- else }}
rules: {file: /etc/weir-rules/rules.yaml}
{{- if $v.policy.document }}
policy: {file: /etc/weir-rules/policy.yaml}
{{- end }}
{{- end }}
shedder: {secret_file: /etc/weir-secrets/admin/shedder}
shutdown: {delay: {{ sub $v.shutdown.delay $v.shutdown.preStop }}s, timeout: {{ int $v.shutdown.timeout }}s}
{{- end }}

{{- define "weir.edge.yaml" -}}
{{ mergeOverwrite (include "weir.edge.base" . | fromYaml) (deepCopy .Values.config) | toYaml }}
{{- end }}

{{/* The ports of the gateways that are on. */}}
{{- define "weir.gateways" -}}
{{- range $name, $port := dict "decide" 8083 "rls" 8084 "spoe" 8085 }}
{{- if (get $.Values.gateways $name).enabled }}
{{ $name }}: {{ $port }}
{{- end }}
{{- end }}
{{- end }}

{{/* A source of the volume of secrets: (dict "secret" {name, key} "path" …). */}}
{{- define "weir.secretFile" -}}
{{- if .secret.name }}
- secret: {name: {{ quote .secret.name }}, items: [{key: {{ quote .secret.key }}, path: {{ .path }}}]}
{{- end }}
{{- end }}

{{- define "weir.edge.secrets" -}}
{{- with .Values }}
- secret: {name: {{ quote .admin.secret }}, items: [{key: token, path: admin/token}, {key: shedder, path: admin/shedder}]}
{{- with .admin.tlsSecret }}
- secret: {name: {{ quote . }}, items: [{key: tls.crt, path: admin/tls.crt}, {key: tls.key, path: admin/tls.key}]}
{{- end }}
{{- with .tls.secret }}
- secret: {name: {{ quote . }}, items: [{key: tls.crt, path: tls/tls.crt}, {key: tls.key, path: tls/tls.key}]}
{{- end }}
{{- if not .redis.trial }}
{{- include "weir.secretFile" (dict "secret" .redis.passwordSecret "path" "redis/password") }}
{{- include "weir.secretFile" (dict "secret" .redis.sentinelPasswordSecret "path" "redis/sentinel-password") }}
{{- if .redis.tls }}
{{- include "weir.secretFile" (dict "secret" .redis.caSecret "path" "redis/ca.crt") }}
{{- end }}
{{- end }}
{{- if eq .rules.source "consul" }}
{{- include "weir.secretFile" (dict "secret" .consul.tokenSecret "path" "consul/token") }}
{{- end }}
{{- range $name, $listener := merge (dict "peer" (dict "enabled" true "tlsSecret" .peer.tlsSecret)) .gateways }}
{{- if and $listener.enabled $listener.tlsSecret }}
- secret:
    name: {{ quote $listener.tlsSecret }}
    items: [{key: tls.crt, path: {{ $name }}/tls.crt}, {key: tls.key, path: {{ $name }}/tls.key}, {key: ca.crt, path: {{ $name }}/ca.crt}]
{{- end }}
{{- end }}
{{- with .extraFiles }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "weir.edge.rules" -}}
{{ .Values.rules.configMap | default (printf "%s-rules" (include "weir.name" .)) }}
{{- end }}
