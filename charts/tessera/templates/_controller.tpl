{{- /* The controller's configuration: what follows from the chart, with `controller.config` laid over it. */ -}}
{{- define "tessera.controllerConfig" -}}
{{- $service := include "tessera.webhookService" . -}}
{{- $secret := default (printf "%s-webhook" (include "tessera.controller" .)) .Values.controller.webhook.certificates.secretName -}}
{{- /* Namespaces as the policies have them. */ -}}
{{- $foreign := dict -}}
{{- range $system := list "volcano" "kai" -}}
{{- $selector := include "tessera.foreignNamespaces" (dict "system" $system "root" $) | fromYaml -}}
{{- $_ := set $foreign $system (set (deepCopy (index $.Values.controller $system)) "namespaceSelector" $selector) -}}
{{- end -}}
{{- $own := dict
  "apiVersion" "config.kueue.x-k8s.io/v1beta2"
  "kind" "Configuration"
  "namespace" (include "tessera.namespace" .)
  "health" (dict "healthProbeBindAddress" "0")
  "manageJobsWithoutQueueName" .Values.controller.jobs.manageWithoutQueueName
  "integrations" (dict "frameworks" (include "tessera.frameworks" . | fromYamlArray))
  "managedJobsNamespaceSelector" (include "tessera.managedNamespaces" . | fromYaml)
  "webhook" (dict "port" (int .Values.controller.webhook.port))
  "internalCertManagement" (dict "enable" .Values.controller.webhook.certificates.selfManaged "webhookServiceName" $service "webhookSecretName" $secret)
  "tessera" (merge (dict "policy" .Values.controller.policy "spot" (dict "maxGrace" (printf "%ss" (include "tessera.givenGrace" .)))) $foreign)
-}}
{{- if or .Values.metrics.rules.prometheusRule .Values.metrics.rules.configMap .Values.metrics.dashboards.enabled -}}
{{- /* GPU-hours of queues and their quota are made of these series. */ -}}
{{- $_ := set $own "metrics" (dict "enableClusterQueueResources" true) -}}
{{- end -}}
{{- if eq (include "tessera.fractionsBy" .) "webhook" -}}
{{- $memory := dict -}}
{{- range $product, $mib := .Values.fractions.gpuMemoryMiB -}}{{- $_ := set $memory $product (int64 $mib) -}}{{- end -}}
{{- $fractions := dict "granularity" (int .Values.fractions.granularity) "gpuMemoryMib" $memory -}}
{{- $_ := set $own.tessera "fractions" $fractions -}}
{{- end -}}
{{- if .Values.controller.bargaining.enabled -}}{{- $_ := set $own.tessera "bargaining" (dict "enabled" true) -}}{{- end -}}
{{- with .Values.controller.webhook.clientCA -}}{{- $_ := set $own.tessera "webhookClientCA" . -}}{{- end -}}
{{- $page := dict -}}
{{- with include "tessera.pageOidc" . | fromYaml -}}{{- $_ := set $page "oidc" . -}}{{- end -}}
{{- if .Values.controller.history.enabled -}}{{- $_ := set $page "history" (dict "folder" "/var/lib/tessera-history") -}}{{- end -}}
{{- if $page -}}{{- $_ := set $own.tessera "page" $page -}}{{- end -}}
{{- mustMergeOverwrite $own (deepCopy .Values.controller.config) | toYaml -}}
{{- end -}}

{{- /* tessera.page.oidc; empty without a provider. Its secret is a file of a mounted Secret, never a part of this. */ -}}
{{- define "tessera.pageOidc" -}}
{{- $oidc := .Values.controller.page.oidc -}}
{{- if $oidc.issuerURL -}}
{{- range list "clientID" "redirectURL" -}}
{{- if not (get $oidc .) -}}{{- fail (printf "controller.page.oidc.%s: found nothing, expected a text: issuerURL is given" .) -}}{{- end -}}
{{- end -}}
{{- $given := dict -}}
{{- range $key, $value := omit $oidc "clientSecret" "ca" -}}
{{- if $value -}}{{- $_ := set $given $key $value -}}{{- end -}}
{{- end -}}
{{- if $oidc.clientSecret.name -}}{{- $_ := set $given "clientSecretFile" "/etc/tessera-page/client-secret/value" -}}{{- end -}}
{{- if $oidc.ca.name -}}{{- $_ := set $given "caFile" "/etc/tessera-page/ca/value" -}}{{- end -}}
{{- toYaml $given -}}
{{- end -}}
{{- end -}}

{{- /* Annotations of what runs at the uninstall; the argument is its place in the order. */ -}}
{{- define "tessera.uninstallHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-weight: {{ . | quote }}
{{- end -}}

{{- /* The same of `helm test`. What failed stays for its log, until the next test. */ -}}
{{- define "tessera.testHook" -}}
helm.sh/hook: test
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-weight: {{ . | quote }}
{{- end -}}

{{- /* The nodes on which pods of the controller may run: what a pod's spec says of them. */ -}}
{{- define "tessera.controllerNodes" -}}
{{- range $field := list "nodeSelector" "affinity" "tolerations" -}}
{{- with get $.Values.controller $field }}
      {{ $field }}:
        {{- toYaml . | nindent 8 }}
{{- end -}}
{{- end -}}
{{- end -}}
