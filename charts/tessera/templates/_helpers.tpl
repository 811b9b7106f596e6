{{- define "tessera.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "tessera.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "tessera.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tessera.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tessera.agent" -}}
{{- include "tessera.fullname" . }}-agent
{{- end -}}

{{- define "tessera.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "tessera.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tessera.agent" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* Selectors cannot be changed by an upgrade: name, release and component only, nothing of a version. The
component keeps two workloads of one release apart. */ -}}
{{- define "tessera.agentSelector" -}}
app.kubernetes.io/name: {{ include "tessera.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "tessera.labels" -}}
{{ include "tessera.agentSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* A digest names one image for good, a tag what the registry has under it now: the digest wins. */ -}}
{{- define "tessera.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "tessera.configMap" -}}
{{- if and .Values.config.name .Values.config.map -}}
{{- fail "config: give either name (an existing ConfigMap) or map (files), not both" -}}
{{- else if .Values.config.name -}}
{{- .Values.config.name -}}
{{- else if .Values.config.map -}}
{{- include "tessera.agent" . }}-config
{{- end -}}
{{- end -}}

{{- /* The file that holds on nodes whose label names none; empty: the agent falls back by the strategies. Where the
files are known, one that cannot be is refused here. */ -}}
{{- define "tessera.configDefault" -}}
{{- $config := .Values.config -}}
{{- if and $config.default $config.map (not (hasKey $config.map $config.default)) -}}
{{- fail (printf "config.default: found %q, expected one of %s" $config.default (keys $config.map | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $named := and (has "named" $config.fallbackStrategies) (hasKey $config.map "default") -}}
{{- $single := and (has "single" $config.fallbackStrategies) (eq (len $config.map) 1) -}}
{{- if not (or $config.default $config.name $named $single (has "empty" $config.fallbackStrategies)) -}}
{{- fail (printf "config.default is needed to choose one of %s" (keys $config.map | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $config.default -}}
{{- end -}}

{{- define "tessera.deviceListStrategy" -}}
{{- if kindIs "slice" .Values.deviceListStrategy -}}
{{- join "," .Values.deviceListStrategy -}}
{{- else -}}
{{- .Values.deviceListStrategy -}}
{{- end -}}
{{- end -}}

{{- /* The least that will do. MIG's capability files and the volume-mounts strategy need SYS_ADMIN with the nvidia
runtime; a config file may ask for either, so its presence counts as asking. */ -}}
{{- define "tessera.securityContext" -}}
{{- $resets := and (include "tessera.resets" .) (not .Values.simulate.enabled) -}}
{{- $mig := and .Values.migStrategy (ne (toString .Values.migStrategy) "none") -}}
{{- $mounts := contains "volume-mounts" (include "tessera.deviceListStrategy" .) -}}
{{- if .Values.securityContext -}}
{{- toYaml .Values.securityContext -}}
{{- else if or .Values.compatWithCPUManager .Values.mps.enabled $resets -}}
privileged: true
readOnlyRootFilesystem: true
{{- else -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
seccompProfile:
  type: RuntimeDefault
capabilities:
  drop: [ALL]
  {{- if and (not .Values.simulate.enabled) (or $mig $mounts .Values.mig.config.name (include "tessera.configMap" .)) }}
  add: [SYS_ADMIN]
  {{- end }}
{{- end -}}
{{- end -}}

{{- /* "true" where the chart lets the agents reset GPUs, else nothing. */ -}}
{{- define "tessera.resets" -}}
{{- if ne .Values.remediation.reset "never" -}}true{{- end -}}
{{- end -}}

{{- /* One environment variable for a value that may be null (left to the config file). */ -}}
{{- define "tessera.env" -}}
{{- if not (kindIs "invalid" .value) }}
- name: {{ .name }}
  value: {{ .value | toString | quote }}
{{- end }}
{{- end -}}

{{/* "true" where GPUs may be given out by ResourceClaim, else nothing. */}}
{{- define "tessera.dra" -}}
{{- $enabled := toString .Values.dra.enabled -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "resource.k8s.io/v1/DeviceClass")) -}}true{{- end -}}
{{- end }}

{{- /* CEL: names of the fields of an object's metadata that the request changes and may not; the argument is a list of those
that it may change. The API server itself writes managedFields, resourceVersion and generation, and at the creation what
tells one object from another. */ -}}
{{- define "tessera.changedMetadata" -}}
{{- $free := concat (list "managedFields" "resourceVersion" "generation") . | toJson | replace "\"" "'" -}}
(dyn(object.metadata).filter(k, !(k in {{ $free }}) && (oldObject == null ?
!(k in ['name', 'namespace', 'uid', 'creationTimestamp']) :
!(k in dyn(oldObject.metadata)) || dyn(oldObject.metadata)[k] != dyn(object.metadata)[k])) +
(oldObject == null ? [] : dyn(oldObject.metadata).filter(k, !(k in {{ $free }}) && !(k in dyn(object.metadata)))))
{{- end -}}

{{- /* CEL: whether an object that an agent writes belongs to the agent's own Node, and to what it belonged to before.
`variables.own`: the name of that Node. */ -}}
{{- define "tessera.ownedByOwnNode" -}}
object.metadata.?ownerReferences.orValue([]).all(o,
(o.apiVersion == 'v1' && o.kind == 'Node' && o.name == variables.own) ||
(oldObject != null && o in oldObject.metadata.?ownerReferences.orValue([])))
{{- end -}}
