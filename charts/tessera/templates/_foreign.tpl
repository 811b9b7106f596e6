{{- /* "true" where Tessera decides about what is Volcano's or KAI's; a dict of `system` and `root`. With `auto`: unless a
scheduler of theirs holds its lease, as the cluster has it when the chart is installed or upgraded. */ -}}
{{- define "tessera.decidesFor" -}}
{{- $values := index .root.Values.controller .system -}}
{{- $held := false -}}
{{- range $values.leases -}}
{{- $parts := splitn "/" 2 . -}}
{{- $lease := lookup "coordination.k8s.io/v1" "Lease" $parts._0 $parts._1 | default dict -}}
{{- $renewed := dig "spec" "renewTime" "" $lease -}}
{{- if and (dig "spec" "holderIdentity" "" $lease) $renewed -}}
{{- $age := sub (now | unixEpoch) (toDate "2006-01-02T15:04:05.999999Z07:00" $renewed | unixEpoch) -}}
{{- if lt $age 60 -}}{{- $held = true -}}{{- end -}}
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
