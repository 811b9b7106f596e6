{{- /* "true" where Tessera decides about what is Volcano's or KAI's; a dict of `system` and `root`. With `auto`: unless a
scheduler of theirs renewed its lease within a minute, as the cluster has it when the chart is installed or upgraded. */ -}}
{{- define "tessera.decidesFor" -}}
{{- $values := index .root.Values.controller .system -}}
{{- $held := false -}}
{{- range $values.leases -}}
{{- $parts := splitn "/" 2 . -}}
{{- $lease := lookup "coordination.k8s.io/v1" "Lease" $parts._0 $parts._1 | default dict -}}
{{- $renewed := dig "spec" "renewTime" "" $lease -}}
{{- if and (dig "spec" "holderIdentity" "" $lease) $renewed -}}
{{- $age := sub (now | unixEpoch) (toDate "2006-01-02T15:04:05.999999Z07:00" $renewed | unixEpoch) -}}
{{- if lt $age (max 60 (dig "spec" "leaseDurationSeconds" 15 $lease | int64)) -}}{{- $held = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- and .root.Values.controller.enabled (or (eq (toString $values.enabled) "true") (and (eq (toString $values.enabled) "auto") (not $held))) -}}
{{- end -}}

{{- /* Namespaces in which it does; likewise. */ -}}
{{- define "tessera.foreignNamespaces" -}}
{{- $values := index .root.Values.controller .system -}}
{{- if $values.namespaceSelector -}}
{{- toYaml $values.namespaceSelector -}}
{{- else -}}
{{- include "tessera.managedNamespaces" .root -}}
{{- end -}}
{{- end -}}

{{- /* "true" where the queues of Volcano or KAI are queues here, by what the API server serves when the chart is installed;
likewise. */ -}}
{{- define "tessera.queuesOf" -}}
{{- $values := index .root.Values.controller .system -}}
{{- $kind := printf "%s/Queue" (get (dict "volcano" "scheduling.volcano.sh/v1beta1" "kai" "scheduling.run.ai/v2") .system) -}}
{{- $there := or (eq (toString $values.enabled) "true") (.root.Capabilities.APIVersions.Has $kind) -}}
{{- and $there (eq (include "tessera.decidesFor" .) "true") -}}
{{- end -}}

{{- /* CEL: the queue of theirs that the object is for, empty for none; likewise. */ -}}
{{- define "tessera.foreignQueue" -}}
{{- $rules := include "tessera.foreignRules" .root | fromYaml -}}
{{- include "tessera.withSchedulers" (dict "expression" (get $rules.queues .system) "root" .root) -}}
{{- end -}}

{{- /* CEL: whether a pod is for the queue of its PodGroup, which no policy sees; likewise. */ -}}
{{- define "tessera.foreignGrouped" -}}
{{- $rules := include "tessera.foreignRules" .root | fromYaml -}}
{{- include "tessera.withSchedulers" (dict "expression" (get $rules.grouped .system) "root" .root) -}}
{{- end -}}

{{- /* CEL: why nothing says whether the object is Volcano's or KAI's, empty where it is known; the argument is the root. */ -}}
{{- define "tessera.foreignConflict" -}}
{{- $rules := include "tessera.foreignRules" . | fromYaml -}}
{{- include "tessera.withSchedulers" (dict "expression" $rules.conflict "root" .) -}}
{{- end -}}

{{- /* CEL with the names of both systems' schedulers in it; a dict of the `expression` and `root`. */ -}}
{{- define "tessera.withSchedulers" -}}
{{- $expression := .expression -}}
{{- range $system := list "kai" "volcano" -}}
{{- $names := include "tessera.foreignSchedulers" (dict "system" $system "root" $.root) -}}
{{- $expression = replace (printf "%s_SCHEDULERS" (upper $system)) $names $expression -}}
{{- end -}}
{{- $expression -}}
{{- end -}}

{{- /* CEL's list of names by which pods ask for the system's scheduler; likewise. */ -}}
{{- define "tessera.foreignSchedulers" -}}
{{- $rules := include "tessera.foreignRules" .root | fromYaml -}}
{{- $values := index .root.Values.controller .system -}}
{{- default (list (get $rules.schedulers .system)) $values.schedulerNames | toJson | replace "\"" "'" -}}
{{- end -}}

{{- /* Match conditions: jobs that are for a queue of theirs; likewise. */ -}}
{{- define "tessera.foreignJobs" -}}
- name: no-queue
  expression: {{ include "tessera.queueName" .root }} == ''
- name: queued
  expression: {{ printf "%s != ''" (include "tessera.foreignQueue" .) | toJson }}
- name: no-child
  expression: >-
    !({{ include "tessera.child" .root | replace "\n" " " }})
{{- end -}}

{{- /* The same for pods. Those of jobs of a queued kind are queued with their job, or not at all. */ -}}
{{- define "tessera.foreignPods" -}}
- name: no-queue
  expression: {{ include "tessera.queueName" .root }} == ''
- name: for-theirs
  expression: {{ printf "%s != '' || (%s)" (include "tessera.foreignQueue" .) (include "tessera.foreignGrouped" .) | toJson }}
{{ include "tessera.ownPods" .root }}
{{- end -}}

{{- /* Match conditions: pods that belong to no queued job, nor to what a kubelet mirrors; the argument is the root. */ -}}
{{- define "tessera.ownPods" -}}
- name: of-no-queued-job
  expression: >-
    !object.metadata.?labels[?'kueue.x-k8s.io/podset'].hasValue() &&
    !object.metadata.?annotations[?'kueue.x-k8s.io/pod-suspending-parent'].hasValue() &&
    !object.metadata.?ownerReferences.orValue([]).exists(o, o.apiVersion.startsWith('batch.volcano.sh/')) &&
    !({{ include "tessera.child" . | replace "\n" " " }})
- name: no-mirror
  expression: "!('system:nodes' in request.userInfo.?groups.orValue([]))"
{{- end -}}

{{- /* CEL: whether a pod names one of their schedulers; likewise. */ -}}
{{- define "tessera.namesScheduler" -}}
object.spec.?schedulerName.orValue('') in {{ include "tessera.foreignSchedulers" . }}
{{- end -}}

{{- /* CEL: whether the object names a queue, or is for one of theirs, whose policy then writes the queue; the argument is
the root. */ -}}
{{- define "tessera.mayBeQueued" -}}
{{- $root := . -}}
{{- include "tessera.queueName" $root }} != ''
{{- range $system := list "kai" "volcano" -}}
{{- $of := dict "system" $system "root" $root -}}
{{- if eq (include "tessera.queuesOf" $of) "true" }} || {{ include "tessera.foreignQueue" $of }} != ''{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Match conditions: the object is for no queue of theirs; likewise. */ -}}
{{- define "tessera.forNoneOfTheirs" -}}
{{- $root := . -}}
{{- range $system := list "kai" "volcano" }}
{{- $of := dict "system" $system "root" $root }}
{{- if eq (include "tessera.queuesOf" $of) "true" }}
- name: not-for-{{ $system }}
  expression: {{ printf "%s == ''" (include "tessera.foreignQueue" $of) | toJson }}
{{- end }}
{{- end }}
{{ include "tessera.notForBoth" $root }}
{{- end -}}

{{- /* Match conditions: the object names a queue, or is not marked as Volcano's and as KAI's. What is is refused, so that
no default queue takes it; the argument is the root. */ -}}
{{- define "tessera.notForBoth" -}}
{{- $root := . -}}
{{- $decided := false -}}
{{- range $system := list "kai" "volcano" }}
{{- if eq (include "tessera.queuesOf" (dict "system" $system "root" $root)) "true" }}{{- $decided = true }}{{- end }}
{{- end }}
{{- if $decided }}
- name: not-marked-for-both
  expression: {{ printf "%s != '' || %s == ''" (include "tessera.queueName" $root) (include "tessera.foreignConflict" $root) | toJson }}
{{- end }}
{{- end -}}

{{- /* CEL: whether an object that serves is to be a gang in a queue of Volcano's; a dict of `system` and `root`. */ -}}
{{- define "tessera.foreignGang" -}}
{{- $gangs := get (include "tessera.foreignRules" .root | fromYaml) "gangs" -}}
({{ $gangs.asked }} && {{ include "tessera.foreignQueue" . }} != '')
{{- end -}}

{{- /* Match conditions: those of them that name no queue yet; likewise. */ -}}
{{- define "tessera.foreignGangs" -}}
- name: no-queue
  expression: {{ include "tessera.queueName" .root }} == ''
- name: for-theirs
  expression: {{ include "tessera.foreignGang" . | toJson }}
{{- end -}}

{{- /* Plurals of what serves and may be such a gang: what is queued here; the argument is the root. */ -}}
{{- define "tessera.gangPlurals" -}}
{{- if eq (include "tessera.plainPodsQueued" .) "true" }}
- deployments
{{- end }}
{{- range include "tessera.queuedServingKinds" . | fromYamlArray }}
{{- if eq .plural "statefulsets" }}
- {{ .plural }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* CEL: operations for an object that has a queue, none for any other; a dict of the `patch` and `root`. An API server
asks policies in an order of its own, another after each change of any policy, and asks one anew only if its match
conditions held before. So a policy that goes by the queue matches before another has written it, and asks here. */ -}}
{{- define "tessera.onceQueued" -}}
{{- if .root.Values.controller.jobs.manageWithoutQueueName -}}
{{- .patch -}}
{{- else -}}
{{ include "tessera.queueName" .root }} == '' ? [] : ({{ .patch }})
{{- end -}}
{{- end -}}

{{- /* "policy" or "webhook": what translates KAI's and HAMi's parts of GPUs; empty where nothing does. */ -}}
{{- define "tessera.fractionsBy" -}}
{{- if and .Values.fractions.policy .Values.fractions.translate -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
policy
{{- else if and .Values.controller.enabled (eq (include "tessera.suspendBy" .) "webhook") -}}
webhook
{{- end -}}
{{- end -}}
{{- end -}}
