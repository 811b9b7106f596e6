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

{{- /* CEL: the job's queue, empty for none. */ -}}
{{- define "tessera.queueName" -}}
object.metadata.?labels[?'kueue.x-k8s.io/queue-name'].orValue('')
{{- end -}}

{{- /* Names of the job kinds that are queued: all of the table, and pods where the values say so. */ -}}
{{- define "tessera.frameworks" -}}
{{- range include "tessera.jobKinds" . | fromYamlArray }}
- {{ .framework }}
{{- end }}
{{- range include "tessera.servingKinds" . | fromYamlArray }}
- {{ .framework }}
{{- end }}
{{- if .Values.controller.pods.enabled }}
- pod
{{- end }}
{{- $volcano := eq (include "tessera.decidesFor" (dict "system" "volcano" "root" .)) "true" }}
{{- $served := .Capabilities.APIVersions.Has "batch.volcano.sh/v1alpha1/Job" }}
{{- if and $volcano (or (eq (toString .Values.controller.volcano.enabled) "true") $served) }}
- batch.volcano.sh/job
{{- end }}
{{- end -}}

{{- /* The rows of the table that are queued: those that the configuration itself lists, else all, less those that it
leaves to other controllers; and those that the values declare, in the form of the table. */ -}}
{{- define "tessera.queuedKinds" -}}
{{- $others := dig "integrations" "externalFrameworks" list .Values.controller.config -}}
{{- $listed := dig "integrations" "frameworks" list .Values.controller.config -}}
{{- range include "tessera.jobKinds" . | fromYamlArray }}
{{- if and (or (not $listed) (has .framework $listed)) (not (has (printf "%s.%s.%s" .kind .version .group) $others)) }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- range .Values.controller.jobKinds }}
- {{ toJson (merge (dict "framework" (printf "%s/%s" .group (lower .kind)) "suspend" (rest (splitList "." .suspend)) "reads" (default list .owns)) (pick . "group" "version" "kind" "plural")) }}
{{- end }}
{{- end -}}

{{- /* The rows of the table of serving kinds that are queued, likewise. */ -}}
{{- define "tessera.queuedServingKinds" -}}
{{- $others := dig "integrations" "externalFrameworks" list .Values.controller.config -}}
{{- $listed := dig "integrations" "frameworks" list .Values.controller.config -}}
{{- range include "tessera.servingKinds" . | fromYamlArray }}
{{- if and (or (not $listed) (has .framework $listed)) (not (has (printf "%s.%s.%s" .kind .version .group) $others)) }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Queued kinds by the path of the field that holds their jobs back, parts of it joined with a slash. */ -}}
{{- define "tessera.kindsByPath" -}}
{{- $found := dict -}}
{{- range include "tessera.queuedKinds" . | fromYamlArray -}}
{{- $path := join "/" .suspend -}}
{{- $_ := set $found $path (append (dig $path list $found) .) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{- /* Resource rules for these rows: a dict of `kinds` and `operations`. */ -}}
{{- define "tessera.kindRules" -}}
{{- range .kinds }}
- apiGroups: [{{ .group }}]
  apiVersions: [{{ .version }}]
  operations: {{ toJson $.operations }}
  resources: [{{ .plural }}]
{{- end }}
{{- end -}}

{{- /* CEL: the operations that hold a job back, as one list; the argument is the path as in tessera.kindsByPath. What is
above the field may be absent: it is added then. */ -}}
{{- define "tessera.suspendPatch" -}}
{{- $parts := splitList "/" . -}}
{{- if eq (len $parts) 2 -}}
[JSONPatch{op: 'add', path: '/{{ . }}', value: true}]
{{- else -}}
{{- $above := initial $parts -}}
(has(object.{{ join "." $above }}) ? [JSONPatch{op: 'add', path: '/{{ . }}', value: true}] :
[JSONPatch{op: 'add', path: '/{{ join "/" $above }}', value: {'{{ last $parts }}': true}}])
{{- end -}}
{{- end -}}

{{- /* CEL: an object's kind with its group before it, since kinds of two groups share names. */ -}}
{{- define "tessera.groupKind" -}}
object.apiVersion.split('/')[0] + '/' + object.kind
{{- end -}}

{{- /* These rows as CEL's list of `group/Kind`. */ -}}
{{- define "tessera.groupKinds" -}}
{{- $names := list -}}
{{- range . }}{{ $names = append $names (printf "%s/%s" .group .kind) }}{{ end -}}
{{- $names | toJson | replace "\"" "'" -}}
{{- end -}}

{{- /* CEL: whether a job is held back; a dict of `object` (its name in CEL) and `root`. `variables.kind`: as tessera.groupKind. */ -}}
{{- define "tessera.isSuspended" -}}
{{- range $path, $kinds := include "tessera.kindsByPath" .root | fromYaml -}}
variables.kind in {{ include "tessera.groupKinds" $kinds }} ? {{ $.object }}.?{{ splitList "/" $path | join ".?" }}.orValue(false) : {{ end -}}
false
{{- end -}}

{{- /* CEL: the name of the field that holds a job back, as its users know it; likewise. */ -}}
{{- define "tessera.suspendField" -}}
{{- range $path, $kinds := include "tessera.kindsByPath" . | fromYaml -}}
variables.kind in {{ include "tessera.groupKinds" $kinds }} ? '{{ replace "/" "." $path }}' : {{ end -}}
''
{{- end -}}

{{- /* What tells a kind's policies from those of others: its plural, with its group where kinds of two groups share it. A
dict of the `kind` and of all `kinds`. */ -}}
{{- define "tessera.policyOf" -}}
{{- $plurals := list -}}
{{- range .kinds }}{{ $plurals = append $plurals .plural }}{{ end -}}
{{- $alone := eq (len $plurals) (add (len (without $plurals .kind.plural)) 1 | int) -}}
{{- ternary .kind.plural (printf "%s.%s" .kind.plural .kind.group) (or $alone (eq .kind.group "batch")) -}}
{{- end -}}

{{- /* Owners whose parts are left to them, as CEL's list of `group/Kind`: kinds that are queued here, and those that the
configuration says somebody else brings to the queue (Kind.version.group). */ -}}
{{- define "tessera.owners" -}}
{{- $found := list "batch/Job" -}}
{{- range include "tessera.queuedKinds" . | fromYamlArray -}}
{{- $found = append $found (printf "%s/%s" .group .kind) -}}
{{- end -}}
{{- range .Values.controller.jobKinds -}}
{{- range .owns -}}
{{- $found = append $found (printf "%s/%s" .group .kind) -}}
{{- end -}}
{{- end -}}
{{- range dig "integrations" "externalFrameworks" list .Values.controller.config -}}
{{- $parts := splitn "." 3 . -}}
{{- $found = append $found (printf "%s/%s" $parts._2 $parts._0) -}}
{{- end -}}
{{- $found | uniq | toJson | replace "\"" "'" -}}
{{- end -}}

{{- /* The plural of a kind as client-go guesses it (meta.UnsafeGuessKindToResource); the argument is the kind. */ -}}
{{- define "tessera.guessedPlural" -}}
{{- $kind := lower . -}}
{{- if hasSuffix "s" $kind -}}{{ $kind }}es
{{- else if hasSuffix "y" $kind -}}{{ trimSuffix "y" $kind }}ies
{{- else -}}{{ $kind }}s
{{- end -}}
{{- end -}}

{{- /* CEL's map of the plurals that are not as they are guessed, by `group/Kind`. */ -}}
{{- define "tessera.oddPlurals" -}}
{{- $found := list -}}
{{- $declared := list -}}
{{- range .Values.controller.jobKinds }}{{ $declared = concat $declared (list .) (default list .owns) }}{{ end -}}
{{- range concat (include "tessera.queuedKinds" . | fromYamlArray) $declared -}}
{{- if ne .plural (include "tessera.guessedPlural" .kind) -}}
{{- $found = append $found (printf "'%s/%s': '%s'" .group .kind .plural) -}}
{{- end -}}
{{- end -}}
{ {{- $found | uniq | join ", " -}} }
{{- end -}}

{{- /* CEL: whether who creates the object may write the status of the kind of its owner `o`: the proof that the owner's own
controller made it. That controller may, by whatever name it runs, and roles for people only read the status. The words of
an owner reference and the name of a user prove nothing. An MPIJob's is the right to its finalizers: the editor role that
the MPI operator ships writes its status too. A guess of a plural that is wrong is a right that nobody has. */ -}}
{{- define "tessera.writesStatusOfOwner" -}}
{{- $group := "(o.apiVersion.contains('/') ? o.apiVersion.split('/')[0] : '')" -}}
{{- $kind := printf "%s + '/' + o.kind" $group -}}
{{- $lower := "o.kind.lowerAscii()" -}}
authorizer.group({{ $group }})
.resource({{ include "tessera.oddPlurals" . }}[?{{ $kind }}].orValue({{ $lower }}.endsWith('s') ? {{ $lower }} + 'es' :
{{ $lower }}.endsWith('y') ? {{ $lower }}.substring(0, size(o.kind) - 1) + 'ies' : {{ $lower }} + 's'))
.subresource({{ $kind }} == 'kubeflow.org/MPIJob' ? 'finalizers' : 'status')
.namespace(request.namespace).check('update').allowed()
{{- end -}}

{{- /* CEL: the child of a job of a known kind, made by that kind's own controller: its parent is queued in its place,
whatever labels it copied. */ -}}
{{- define "tessera.child" -}}
{{- $group := "o.apiVersion.split('/')[0]" -}}
{{- $kind := printf "%s + '/' + o.kind" $group -}}
object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) &&
({{ $kind }} in {{ include "tessera.owners" . }} ||
{{ $group }} in {{ .Values.controller.jobs.ownerGroups | toJson | replace "\"" "'" }}) &&
{{ include "tessera.writesStatusOfOwner" . }})
{{- end -}}

{{- /* CEL: operations that mark a job which comes with an owner that its creator could not prove: the controller releases
it within what the owner's workload is charged for. */ -}}
{{- define "tessera.awaitsOwner" -}}
(object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)) ?
(has(object.metadata.annotations) ?
[JSONPatch{op: 'add', path: '/metadata/annotations/tessera.dev~1awaits-owner', value: 'true'}] :
[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'tessera.dev/awaits-owner': 'true'}}]) : [])
{{- end -}}

{{- /* CEL's list of what the mark of pods says that wait for a group. */ -}}
{{- define "tessera.groupedParents" -}}
{{- $found := list -}}
{{- range include "tessera.queuedServingKinds" . | fromYamlArray -}}
{{- if .grouped }}{{ $found = append $found .framework }}{{ end -}}
{{- end -}}
{{- $found | toJson | replace "\"" "'" -}}
{{- end -}}

{{- /* CEL: the operations that stamp one pod template of an object with a queue, if it is there; a dict of the `stamp`,
the `framework` of its kind and the `root`. As controller/jobs/serving/kind.py. */ -}}
{{- define "tessera.stamp" -}}
{{- $template := printf "object.spec.?%s" (rest .stamp.path | join ".?") -}}
{{- $metadata := printf "/%s/metadata" (join "/" .stamp.path) -}}
{{- $annotations := merge (dict "kueue.x-k8s.io/pod-suspending-parent" .framework) .stamp.annotations -}}
!{{ $template }}.hasValue() ? [] :
({{ $template }}.?metadata.hasValue() ? [] : [JSONPatch{op: 'add', path: '{{ $metadata }}', value: {}}]) +
{{- if or .stamp.labels .stamp.copied }}
({{ $template }}.?metadata.?labels.hasValue() ? [] : [JSONPatch{op: 'add', path: '{{ $metadata }}/labels', value: {}}]) +
{{- end }}
{{- range $key, $value := .stamp.labels }}
[JSONPatch{op: 'add', path: '{{ $metadata }}/labels/{{ replace "/" "~1" $key }}', value: '{{ $value }}'}] +
{{- end }}
{{- range .stamp.copied }}
(object.metadata.?labels[?'{{ . }}'].orValue('') == '' ? [] :
[JSONPatch{op: 'add', path: '{{ $metadata }}/labels/{{ replace "/" "~1" . }}', value: object.metadata.labels['{{ . }}']}]) +
{{- end }}
({{ $template }}.?metadata.?annotations.hasValue() ? [] :
[JSONPatch{op: 'add', path: '{{ $metadata }}/annotations', value: {}}]) +
{{- $placed := dig "featureGates" "TopologyAwareScheduling" true .root.Values.controller.config -}}
{{- with and $placed .stamp.offsetBeside }}
(object.spec.?{{ rest . | join ".?" }}.hasValue() &&
!{{ $template }}.?metadata.?annotations[?'kueue.x-k8s.io/podset-group-name'].hasValue() ?
[JSONPatch{op: 'add', path: '{{ $metadata }}/annotations/kueue.x-k8s.io~1pod-index-offset', value: '1'}] : []) +
{{- end }}
{{- $parts := list }}
{{- range $key, $value := $annotations }}
{{- $parts = append $parts (printf "JSONPatch{op: 'add', path: '%s/annotations/%s', value: '%s'}" $metadata (replace "/" "~1" $key) $value) }}
{{- end }}
[{{ join ",\n" $parts }}]
{{- end -}}

{{- /* CEL: no pod template of an object is stamped by another kind; the argument is the row of its own. */ -}}
{{- define "tessera.ownStamp" -}}
{{- $kind := . -}}
{{- $parts := list -}}
{{- range .stamps -}}
{{- $parts = append $parts (printf "object.spec.?%s.?metadata.?annotations[?'kueue.x-k8s.io/pod-suspending-parent'].orValue('%s') == '%s'" (rest .path | join ".?") $kind.framework $kind.framework) -}}
{{- end -}}
{{ join " && " $parts }}
{{- end -}}

{{- /* Names of the kinds whose rules are asked: those that are queued, pods, and kinds whose pods wait for them. */ -}}
{{- define "tessera.ruledFrameworks" -}}
{{- range concat (include "tessera.queuedKinds" . | fromYamlArray) (include "tessera.queuedServingKinds" . | fromYamlArray) }}
- {{ .framework }}
{{- end }}
{{- if eq (include "tessera.podsQueued" .) "true" }}
- pod
{{- end }}
{{- end -}}

{{- /* CEL: feature gates by name, as the configuration has them; a dict of `gates` (defaults by name) and `root`. */ -}}
{{- define "tessera.gatesInForce" -}}
{{- $given := dig "featureGates" dict .root.Values.controller.config -}}
{{- $found := list -}}
{{- range $name, $default := .gates -}}
{{- $found = append $found (printf "'%s': %v" $name (dig $name $default $given)) -}}
{{- end -}}
{ {{- join ", " $found -}} }
{{- end -}}
