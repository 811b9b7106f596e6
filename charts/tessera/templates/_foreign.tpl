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
{{- get $rules.queues .system | replace "SCHEDULERS" (include "tessera.foreignSchedulers" .) -}}
{{- end -}}

{{- /* CEL: whether a pod is for the queue of its PodGroup, which no policy sees; likewise. */ -}}
{{- define "tessera.foreignGrouped" -}}
{{- $rules := include "tessera.foreignRules" .root | fromYaml -}}
{{- get $rules.grouped .system | replace "SCHEDULERS" (include "tessera.foreignSchedulers" .) -}}
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
- name: of-no-queued-job
  expression: >-
    !object.metadata.?labels[?'kueue.x-k8s.io/podset'].hasValue() &&
    !object.metadata.?annotations[?'kueue.x-k8s.io/pod-suspending-parent'].hasValue() &&
    !object.metadata.?ownerReferences.orValue([]).exists(o, o.apiVersion.startsWith('batch.volcano.sh/')) &&
    !({{ include "tessera.child" .root | replace "\n" " " }})
- name: no-mirror
  expression: "!('system:nodes' in request.userInfo.?groups.orValue([]))"
{{- end -}}

{{- /* CEL: whether a pod names one of their schedulers; likewise. */ -}}
{{- define "tessera.namesScheduler" -}}
object.spec.?schedulerName.orValue('') in {{ include "tessera.foreignSchedulers" . }}
{{- end -}}
