{{- define "dranet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "dranet.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "dranet.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "dranet.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "dranet.instance" -}}
{{- /* Name of the DaemonSet: the release's, with the pool's where nodePools has one. */ -}}
{{- include "dranet.fullname" . }}{{ with .Pool }}-{{ . }}{{ end }}
{{- end }}

{{- define "dranet.nodeSelector" -}}
{{- $linux := dict "kubernetes.io/os" "linux" }}
{{- $pool := dict }}
{{- with .Pool }}{{ $_ := set $pool $.Values.nodePools.label . }}{{ end }}
{{- merge $pool .Values.nodeSelector $linux | toYaml }}
{{- end }}

{{- define "dranet.affinity" -}}
{{- /* The DaemonSet for all nodes leaves out those of the pools, in each of the terms that the values have. */ -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- if and .Values.nodePools.pools (not .Pool) }}
{{- $expression := dict "key" .Values.nodePools.label "operator" "NotIn" "values" (keys .Values.nodePools.pools | sortAlpha) }}
{{- $required := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" dict $affinity }}
{{- $terms := list }}
{{- range $required.nodeSelectorTerms | default (list dict) }}
{{- $term := dict "matchExpressions" (append (.matchExpressions | default list) $expression) }}
{{- $terms = append $terms (merge $term (omit . "matchExpressions")) }}
{{- end }}
{{- $node := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" $node) }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{- define "dranet.driverPods" -}}
{{- /* The driver's pods of all pools; the page's pods have another tier. */ -}}
k8s-app: {{ include "dranet.fullname" . }}
tier: node
{{- end }}

{{- define "dranet.labels" -}}
app: {{ include "dranet.instance" . }}
k8s-app: {{ include "dranet.fullname" . }}
tier: node
app.kubernetes.io/name: {{ include "dranet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "dranet.port" -}}
{{- .Values.metricsPort | default 9177 }}
{{- end }}

{{- define "dranet.probeHost" -}}
{{- /* The kubelet probes the pod's address, which is the node's; another address must be named. */ -}}
{{- if ne .Values.bindAddress "node" }}{{ .Values.bindAddress | trimPrefix "[" | trimSuffix "]" }}{{ end }}
{{- end }}

{{- define "dranet.writesSysfs" -}}
{{- if or .Values.args.sriovVfs (and .Values.recoverHiddenDevices (ne (toString .Values.args.rebindLostCards) "false")) }}true{{ end }}
{{- end }}

{{- define "dranet.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "dranet.resourceApi" -}}
{{- /* The newest the cluster serves, as the driver takes it; v1 where helm renders without a cluster. */ -}}
{{- if .Capabilities.APIVersions.Has "resource.k8s.io/v1" -}}
resource.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta2" -}}
resource.k8s.io/v1beta2
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta1" -}}
resource.k8s.io/v1beta1
{{- else -}}
resource.k8s.io/v1
{{- end }}
{{- end }}
