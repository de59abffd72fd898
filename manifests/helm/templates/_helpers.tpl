{{/* Labels of an object: (list $ COMPONENT). Name and instance are fixed, as selectors and the programs go by them. */}}
{{- define "device-taint-webhook.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: device-taint-webhook
app.kubernetes.io/instance: device-taint-webhook
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: device-taint-webhook
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image of all containers. */}}
{{- define "device-taint-webhook.image" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.image.repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Environment variables that a workload has from values: (list $ VALUES_OF_THE_WORKLOAD). */}}
{{- define "device-taint-webhook.env" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.proxy.httpProxy }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with $root.Values.proxy.httpsProxy }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with $root.Values.proxy.noProxy }}
- name: NO_PROXY
  value: {{ . | quote }}
{{- end }}
{{- if ne $root.Values.logging.format "json" }}
- name: DEVICE_TAINT_WEBHOOK_LOG_FORMAT
  value: {{ $root.Values.logging.format }}
{{- end }}
{{- if $root.Values.logging.verbose }}
- name: DEVICE_TAINT_WEBHOOK_VERBOSE
  value: "true"
{{- end }}
{{- with (index . 1).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Environment variables that choices add to serve. */}}
{{- define "device-taint-webhook.serveEnv" -}}
{{- if .Values.clientCertificates.enabled }}
- name: DEVICE_TAINT_WEBHOOK_CLIENT_CA_FILE
  value: /etc/device-taint-webhook/client-ca/ca.crt
{{- if ne (toJson .Values.clientCertificates.names) (toJson (list "kube-apiserver")) }}
- name: DEVICE_TAINT_WEBHOOK_CLIENT_NAMES
  value: {{ join "," .Values.clientCertificates.names | quote }}
{{- end }}
{{- end }}
{{- if .Values.watchPods }}
- name: DEVICE_TAINT_WEBHOOK_WATCH_PODS
  value: "true"
{{- end }}
{{- if .Values.patches.enabled }}
- name: DEVICE_TAINT_WEBHOOK_WATCH_PATCHES
  value: "true"
{{- end }}
{{- if .Values.patch.enabled }}
- name: DEVICE_TAINT_WEBHOOK_PATCH_ACCOUNT
  value: device-taint-patch
{{- end }}
{{- if .Values.patches.sliceAttributes }}
- name: DEVICE_TAINT_WEBHOOK_SLICE_ATTRIBUTES
  value: "true"
{{- end }}
{{- $ports := include "device-taint-webhook.ports" . | fromYaml }}
{{- if or .Values.hostNetwork .Values.ports.webhook }}
- name: DEVICE_TAINT_WEBHOOK_PORT
  value: {{ $ports.webhook | quote }}
{{- end }}
{{- if or .Values.hostNetwork .Values.ports.probes }}
- name: DEVICE_TAINT_WEBHOOK_HEALTH_PROBE_BIND_ADDRESS
  value: {{ printf ":%v" $ports.probes | quote }}
{{- end }}
{{- if or .Values.hostNetwork .Values.ports.metrics }}
- name: DEVICE_TAINT_WEBHOOK_METRICS_BIND_ADDRESS
  value: {{ printf ":%v" $ports.metrics | quote }}
{{- end }}
{{- end }}

{{/* The ports of serve, as a map. */}}
{{- define "device-taint-webhook.ports" -}}
webhook: {{ .Values.ports.webhook | default (ternary 10261 9443 .Values.hostNetwork) | int }}
probes: {{ .Values.ports.probes | default (ternary 10262 8081 .Values.hostNetwork) | int }}
metrics: {{ .Values.ports.metrics | default (ternary 10263 8080 .Values.hostNetwork) | int }}
{{- end }}

{{/* Where pods may run: the fields of a pod that are the same for all workloads. */}}
{{- define "device-taint-webhook.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What pods may reach: API servers and DNS. */}}
{{- define "device-taint-webhook.egress" -}}
- ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
  - port: {{ . | int }}
    protocol: TCP
  {{- end }}
{{- with .Values.networkPolicy.dnsPorts }}
- ports:
  {{- range . }}
  - port: {{ . | int }}
    protocol: UDP
  - port: {{ . | int }}
    protocol: TCP
  {{- end }}
{{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What a pod that runs one command and ends has in common with the others: (list $ NAME ARGUMENTS RESOURCES). */}}
{{- define "device-taint-webhook.oncePod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ printf "device-taint-webhook-%s" (index . 1) }}
automountServiceAccountToken: true
enableServiceLinks: false
restartPolicy: Never
{{ include "device-taint-webhook.placement" $root }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
containers:
- name: {{ index . 1 }}
  image: {{ include "device-taint-webhook.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
    {{- toYaml (index . 2) | nindent 4 }}
  env:
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        apiVersion: v1
        fieldPath: metadata.namespace
  resources:
    {{- toYaml (index . 3) | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
    privileged: false
    readOnlyRootFilesystem: true
  terminationMessagePolicy: FallbackToLogsOnError
{{- end }}
