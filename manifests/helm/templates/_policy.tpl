{{- /* The mistakes in a policy that is given as a text, one a line, for (list schema value path definitions): the schema
       of the values sees only a text. The schema is files/policy.schema.json, made of webhook/policy/schema.json. */ -}}
{{- define "device-taint-webhook.mistakes" }}
{{- $schema := index . 0 }}{{ $value := index . 1 }}{{ $path := index . 2 }}{{ $definitions := index . 3 }}
{{- with index $schema "$ref" }}{{ $schema = index $definitions (base .) }}{{ end }}
{{- $kind := get (dict "map" "object" "slice" "array" "bool" "boolean" "invalid" "null" "float64" "number") (kindOf $value) | default "string" }}
{{- if and (eq $kind "number") (has "integer" ($schema.type | default list)) (eq (floor $value) $value) }}{{ $kind = "integer" }}{{ end }}
{{- if and $schema.type (not (has $kind $schema.type)) (not (and (eq $kind "integer") (has "number" $schema.type))) }}
{{ $path }}: must be of type {{ without $schema.type "null" | join " or " }}, not {{ $kind }}
{{- else if and $schema.enum (not (has $value $schema.enum)) }}
{{ $path }}: must be one of {{ without $schema.enum false | join ", " }}, not {{ $value }}
{{- else if eq $kind "object" }}
{{- range $name := $schema.required }}{{ if not (hasKey $value $name) }}
{{ $path }}.{{ $name }}: is required
{{- end }}{{ end }}
{{- if or (lt (len $value) (int ($schema.minProperties | default 0))) (gt (len $value) (int ($schema.maxProperties | default 10000))) }}
{{ $path }}: has {{ len $value }} entries, which is not allowed
{{- end }}
{{- range $name, $each := $value }}
{{- $field := index ($schema.properties | default dict) $name | default $schema.additionalProperties }}
{{- if kindIs "map" $field }}
{{- include "device-taint-webhook.mistakes" (list $field $each (printf "%s.%s" $path $name) $definitions) }}
{{- else }}
{{ $path }}.{{ $name }}: is no field of a policy
{{- end }}
{{- with $schema.propertyNames }}
{{- include "device-taint-webhook.mistakes" (list . $name (printf "%s.%s" $path $name) $definitions) }}
{{- end }}
{{- end }}
{{- else if eq $kind "array" }}
{{- if or (lt (len $value) (int ($schema.minItems | default 0))) (gt (len $value) (int ($schema.maxItems | default 10000))) }}
{{ $path }}: has {{ len $value }} entries, which is not allowed
{{- end }}
{{- range $position, $each := $value }}
{{- include "device-taint-webhook.mistakes" (list $schema.items $each (printf "%s[%d]" $path $position) $definitions) }}
{{- end }}
{{- else if eq $kind "string" }}
{{- $length := len (regexFindAll "(?s)." $value -1) }}
{{- if or (lt $length (int ($schema.minLength | default 0))) (gt $length (int ($schema.maxLength | default 1000000))) }}
{{ $path }}: has {{ $length }} characters, which is not allowed
{{- else if and $schema.pattern (not (regexMatch ($schema.pattern | default "") $value)) }}
{{ $path }}: {{ quote $value }} has the wrong form
{{- end }}
{{- else if or (eq $kind "number") (eq $kind "integer") }}
{{- if or (and (hasKey $schema "minimum") (lt $value $schema.minimum)) (and (hasKey $schema "exclusiveMinimum") (le $value $schema.exclusiveMinimum)) (and (hasKey $schema "maximum") (gt $value $schema.maximum)) }}
{{ $path }}: {{ $value }} is out of range
{{- end }}
{{- end }}
{{- end }}
