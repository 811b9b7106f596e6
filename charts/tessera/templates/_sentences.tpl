{{- /* Refuses a text that does not fit files/sentences.yaml: a pattern is no sentence, and the schema knows no other. */ -}}
{{- define "tessera.sentences" -}}
{{- range $rule := .Files.Get "files/sentences.yaml" | fromYamlArray -}}
{{- $found := list $.Values -}}
{{- range $part := splitList "." $rule.value -}}
{{- $key := trimSuffix "[]" $part -}}
{{- $next := list -}}
{{- range $each := $found -}}
{{- if and (hasKey $each $key) (not (kindIs "invalid" (get $each $key))) -}}
{{- $next = concat $next (ternary (get $each $key) (list (get $each $key)) (hasSuffix "[]" $part)) -}}
{{- end -}}
{{- end -}}
{{- $found = $next -}}
{{- end -}}
{{- range $text := $found -}}
{{- if not (regexMatch $rule.pattern (toString $text)) -}}
{{- fail (printf "%s: found %q, expected %s" $rule.value (toString $text) $rule.expected) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
