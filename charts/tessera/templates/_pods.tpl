{{- /* "true" where plain pods are queued: by the configuration's own list of frameworks, else by the value. */ -}}
{{- define "tessera.plainPodsQueued" -}}
{{- $listed := dig "integrations" "frameworks" list .Values.controller.config -}}
{{- and .Values.controller.enabled (ternary (has "pod" $listed) .Values.controller.pods.enabled (gt (len $listed) 0)) -}}
{{- end -}}

{{- /* "auto" or "off": whether jobs start with PodGroups of Kubernetes' own, as the controller's configuration says. */ -}}
{{- define "tessera.nativeGangs" -}}
{{- $tessera := dig "tessera" dict .Values.controller.config -}}
{{- $policy := dig "policy" .Values.controller.policy $tessera -}}
{{- /* A bare off is a boolean in YAML. */ -}}
{{- ternary "auto" "off" (eq "auto" (dig "nativeGangs" (ternary "auto" "off" (eq $policy "tessera")) $tessera | toString)) -}}
{{- end -}}

{{- /* "true" where pods of queued jobs are marked for autoscalers: beyond Kueue. */ -}}
{{- define "tessera.marksPods" -}}
{{- eq "tessera" (dig "policy" .Values.controller.policy (dig "tessera" dict .Values.controller.config)) -}}
{{- end -}}

{{- /* Expressions, in CEL, that no spot node meets: the table of the controller, and the configuration's own labels. */ -}}
{{- define "tessera.offSpot" -}}
{{- $labels := dict "karpenter.sh/capacity-type" "spot" "cloud.google.com/gke-spot" "true" "cloud.google.com/gke-preemptible" "true" "eks.amazonaws.com/capacityType" "SPOT" "kubernetes.azure.com/scalesetpriority" "spot" -}}
{{- $more := dig "spotLabels" dict (dig "tessera" dict .Values.controller.config) -}}
{{- $values := dict -}}
{{- range $key, $value := $labels -}}{{- $_ := set $values $key (list $value) -}}{{- end -}}
{{- range $key, $value := $more -}}{{- $_ := set $values $key (append (get $values $key | default list) ($value | toString) | uniq) -}}{{- end -}}
{{- $all := list -}}
{{- range $key, $these := $values -}}
{{- $all = append $all (printf "{'key': dyn(%s), 'operator': dyn('NotIn'), 'values': dyn(%s)}" ($key | toJson) ($these | toJson)) -}}
{{- end -}}
[{{ join ", " $all }}]
{{- end -}}

{{- /* The most seconds between SIGTERM and its end that a pod gets for its checkpoint: the configuration's, else the value
from before that, else ten minutes. */ -}}
{{- define "tessera.maxGrace" -}}
{{- $old := .Values.controller.pods.maxCheckpointGraceSeconds -}}
{{- $asked := dig "tessera" "spot" "maxGrace" "" .Values.controller.config | toString -}}
{{- if $asked -}}
{{- $seconds := 0 -}}
{{- if regexMatch "^([0-9]{1,2}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?$" $asked -}}
{{- range $unit, $worth := dict "h" 3600 "m" 60 "s" 1 -}}
{{- $seconds = add $seconds (mul $worth (regexFind (printf "[0-9]+%s" $unit) $asked | trimSuffix $unit | int)) -}}
{{- end -}}
{{- end -}}
{{- if or (lt $seconds 30) (gt $seconds 86400) -}}
{{- fail (printf "controller.config.tessera.spot.maxGrace: found %q, expected a duration of whole seconds from 30s to 24h, such as 1h30m" $asked) -}}
{{- end -}}
{{- if and (not (kindIs "invalid" $old)) (ne (int $old) (int $seconds)) -}}
{{- fail (printf "controller.pods.maxCheckpointGraceSeconds: found %d, expected null or %d as controller.config.tessera.spot.maxGrace says (%s)" (int $old) (int $seconds) $asked) -}}
{{- end -}}
{{- $seconds -}}
{{- else -}}
{{- ternary 600 $old (kindIs "invalid" $old) | int -}}
{{- end -}}
{{- end -}}

{{- /* The seconds up to which the controller believes that pods are given a grace: without the policy that raises it,
Kubernetes' own 30. */ -}}
{{- define "tessera.givenGrace" -}}
{{- $most := include "tessera.maxGrace" . -}}
{{- ternary $most "30" (and (eq (include "tessera.suspendBy" .) "policy") (eq (include "tessera.marksPods" .) "true")) -}}
{{- end -}}

{{- /* "true" where a pod that names no queue may have to wait: its group's object names it, or all pods wait. */ -}}
{{- define "tessera.unnamedPodsQueued" -}}
{{- or .Values.controller.jobs.manageWithoutQueueName (ne (include "tessera.groupedParents" .) "[]") -}}
{{- end -}}

{{- /* "true" where pods are queued: plain ones, or those of serving kinds and of Volcano Jobs above their minimum alone. */ -}}
{{- define "tessera.podsQueued" -}}
{{- $others := or (eq (include "tessera.volcanoJobsRun" .) "true") (gt (len (include "tessera.queuedServingKinds" . | fromYamlArray)) 0) -}}
{{- and .Values.controller.enabled (or (eq (include "tessera.plainPodsQueued" .) "true") $others) -}}
{{- end -}}

{{- /* "true" where Volcano Jobs are queued, and run. */ -}}
{{- define "tessera.volcanoJobsRun" -}}
{{- $listed := dig "integrations" "frameworks" list .Values.controller.config -}}
{{- has "batch.volcano.sh/job" ($listed | default (include "tessera.frameworks" . | fromYamlArray)) -}}
{{- end -}}

{{- /* CEL: whether a pod is created for an object whose pods wait for their group. */ -}}
{{- define "tessera.joins" -}}
object.metadata.?annotations[?'kueue.x-k8s.io/pod-suspending-parent'].orValue('') in {{ include "tessera.groupedParents" . }}
{{- end -}}

{{- /* Match conditions: pods that go to a queue when they are created. Pods of a queued Job that was started have their
place in the queue already, whatever controller made them, as has what a kubelet mirrors. Without a queue, pods wait too where
all Jobs do, but for those that their owner's own controller made: that owner is to be queued itself. */ -}}
{{- define "tessera.queuedPods" -}}
- name: queued
  expression: >-
    {{ include "tessera.queueName" . }} != '' || {{ include "tessera.joins" . }}
    {{- if .Values.controller.jobs.manageWithoutQueueName }} ||
    !object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) &&
    {{ include "tessera.writesStatusOfOwner" . | replace "\n" " " }})
    {{- end }}
{{- if ne (include "tessera.plainPodsQueued" .) "true" }}
- name: of-a-serving-kind
  expression: object.metadata.?annotations[?'kueue.x-k8s.io/pod-suspending-parent'].hasValue()
{{- end }}
- name: of-no-queued-job
  expression: >-
    {{ include "tessera.joins" . }} ||
    !(object.metadata.?labels[?'kueue.x-k8s.io/podset'].hasValue() &&
    ({{ include "tessera.child" . | replace "\n" " " }}))
- name: no-mirror
  expression: "!('system:nodes' in request.userInfo.?groups.orValue([]))"
{{- end -}}
