{{- define "tessera.controller" -}}
{{- include "tessera.fullname" . }}-controller
{{- end -}}

{{- define "tessera.controllerServiceAccount" -}}
{{- default (include "tessera.controller" .) .Values.controller.serviceAccount.name -}}
{{- end -}}

{{- define "tessera.controllerUser" -}}
system:serviceaccount:{{ include "tessera.namespace" . }}:{{ include "tessera.controllerServiceAccount" . }}
{{- end -}}

{{- define "tessera.webhookService" -}}
{{- include "tessera.controller" . }}-webhook
{{- end -}}

{{- /* "policy" or "webhook": who suspends a Job when it is created. */ -}}
{{- define "tessera.suspendBy" -}}
{{- if ne .Values.controller.jobs.suspendBy "auto" -}}
{{- .Values.controller.jobs.suspendBy -}}
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
policy
{{- else -}}
webhook
{{- end -}}
{{- end -}}

{{- /* Namespaces whose Jobs are managed: the values' selector, or all but Kubernetes' own and the release's. */ -}}
{{- define "tessera.managedNamespaces" -}}
{{- if .Values.controller.jobs.namespaceSelector -}}
{{- toYaml .Values.controller.jobs.namespaceSelector -}}
{{- else -}}
matchExpressions:
- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {{ include "tessera.namespace" . | quote }}]}
{{- end -}}
{{- end -}}

{{- /* Selectors cannot be changed by an upgrade: name, release and component only, nothing of a version. */ -}}
{{- define "tessera.controllerSelector" -}}
app.kubernetes.io/name: {{ include "tessera.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "tessera.controllerLabels" -}}
{{ include "tessera.controllerSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* CEL: the Job's queue, empty for none. */ -}}
{{- define "tessera.queueName" -}}
object.metadata.?labels[?'kueue.x-k8s.io/queue-name'].orValue('')
{{- end -}}

{{- /* CEL: the child of a job of another kind, whose own controller made it: its parent is queued in its place. A
person who invents such an owner is not believed. */ -}}
{{- define "tessera.child" -}}
request.userInfo.username.startsWith('system:serviceaccount:') &&
object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) &&
o.apiVersion.split('/')[0] in {{ .Values.controller.jobs.ownerGroups | toJson | replace "\"" "'" }})
{{- end -}}
