{{- define "kruise.labels" -}}
app.kubernetes.io/name: pykruise
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kruise.image" -}}
{{- $image := .Values.manager.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (printf "v%s" .Chart.AppVersion) }}{{ end }}
{{- end }}

{{- /* Selector of the manager's Pods: OpenKruise's label, so that its Deployment can be upgraded in place. */ -}}
{{- define "kruise.selector" -}}
control-plane: controller-manager
{{- end }}

{{- /* The image runs only on Linux nodes. The given values may add labels or override the operating system. */ -}}
{{- define "kruise.nodeSelector" -}}
{{- merge (dict) (. | default dict) (dict "kubernetes.io/os" "linux") | toYaml }}
{{- end }}

{{- /* The gates in the value featureGates as JSON (name: boolean). Fails on invalid gates, as the manager would at startup. */ -}}
{{- define "kruise.gates" -}}
{{- $known := include "kruise.declared.gates" . | fromJson }}
{{- $aliases := include "kruise.declared.gateAliases" . | fromJson }}
{{- $groups := include "kruise.declared.gateGroups" . | fromJsonArray }}
{{- $found := dict }}
{{- range $item := splitList "," .Values.featureGates }}
  {{- with trim $item }}
    {{- $parts := splitn "=" 2 . }}
    {{- $name := trim $parts._0 }}
    {{- $name = get $aliases $name | default $name }}
    {{- if not (or (hasKey $known $name) (has $name $groups)) }}
      {{- fail (printf "featureGates: unknown feature gate %q; known are %s" $name (concat (keys $known) $groups | sortAlpha | join ", ")) }}
    {{- end }}
    {{- $value := trim ($parts._1 | default "") | lower }}
    {{- if not (has $value (list "true" "false" "t" "f" "1" "0")) }}
      {{- fail (printf "featureGates: %s: expected true or false, got %q" $name $value) }}
    {{- end }}
    {{- $_ := set $found $name (has $value (list "true" "t" "1")) }}
  {{- end }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{- /* "true" if a gate is on in the manager, including gates that force it on or off: (list $ gate). */ -}}
{{- define "kruise.gateIsOn" -}}
{{- $root := index . 0 }}
{{- $forced := include "kruise.declared.gatesForced" $root | fromJson }}
{{- $on := eq (include "kruise.gateGiven" .) "true" }}
{{- range $cause := get (get $forced "on") (index . 1) | default list }}
  {{- $on = or $on (eq (include "kruise.gateGiven" (list $root $cause)) "true") }}
{{- end }}
{{- range $cause := get (get $forced "off") (index . 1) | default list }}
  {{- $on = and $on (eq (include "kruise.gateGiven" (list $root $cause)) "true") }}
{{- end }}
{{- $on }}
{{- end }}

{{- /* The value given for a gate or its group, or its default: (list $ gate). */ -}}
{{- define "kruise.gateGiven" -}}
{{- $root := index . 0 }}
{{- $gate := index . 1 }}
{{- $given := include "kruise.gates" $root | fromJson }}
{{- $group := get (include "kruise.declared.gateGroupOf" $root | fromJson) $gate }}
{{- if hasKey $given $gate }}{{ get $given $gate }}
{{- else if hasKey $given $group }}{{ get $given $group }}
{{- else }}{{ get (include "kruise.declared.gates" $root | fromJson) $gate }}
{{- end }}
{{- end }}

{{- /*
Fails if the Kubernetes version is too old. Chart.yaml has no kubeVersion, because a helm built without a version assumes
v1.20.0 without a cluster, and could then render nothing.
*/ -}}
{{- define "kruise.requireKubernetes" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- if and (ne $version "v1.20.0") (semverCompare "< 1.22.0-0" $version) }}
  {{- fail (printf "Kubernetes %s is too old: 1.22 or newer is required (docs/installing.md)" $version) }}
{{- end }}
{{- if and .Values.deletionProtection.admissionPolicies (ne (include "kruise.admissionPolicies" .) "true") }}
  {{- fail (printf "deletionProtection.admissionPolicies: Kubernetes %s has no ValidatingAdmissionPolicy: 1.30 or newer is required" $version) }}
{{- end }}
{{- end }}

{{- /* "true" unless Kubernetes is known to be older than 1.30, the first version with ValidatingAdmissionPolicies. */ -}}
{{- define "kruise.admissionPolicies" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- or (eq $version "v1.20.0") (semverCompare ">= 1.30.0-0" $version) }}
{{- end }}

{{- /* The files in the manager's policies folder. */ -}}
{{- define "kruise.policies" -}}
webhooks.yaml: |
  {{- include "kruise.webhookPolicies" . | nindent 2 }}
{{- with .Values.deletionProtection.kinds }}
protected-kinds.yaml: |
  {{- dict "kinds" . | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kruise.webhookPolicies" -}}
{{- $known := include "kruise.declared.webhooks" . | fromJsonArray }}
{{- $given := .Values.webhookConfiguration }}
{{- $webhooks := dict }}
{{- range $name, $override := $given.webhooks }}
  {{- if not (has $name $known) }}
    {{- fail (printf "webhookConfiguration.webhooks: no webhook is called %q; known are %s" $name (join ", " $known)) }}
  {{- end }}
  {{- $_ := set $webhooks $name (deepCopy $override) }}
{{- end }}
{{- with $given.timeoutSeconds }}
  {{- range $name := $known }}
    {{- $override := get $webhooks $name | default dict }}
    {{- $_ := set $webhooks $name (merge $override (dict "timeoutSeconds" (int $given.timeoutSeconds))) }}
  {{- end }}
{{- end }}
{{- with dig "pods" "" ($given.failurePolicy | default dict) }}
  {{- range $name := list "mpod.kb.io" "vpod.kb.io" "vpodeviction.kb.io" }}
    {{- if has $name $known }}
      {{- $override := get $webhooks $name | default dict }}
      {{- $_ := set $webhooks $name (merge $override (dict "failurePolicy" $given.failurePolicy.pods)) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $labels := deepCopy $given.excludedNamespaceLabels }}
{{- if $given.aksIntegration }}
  {{- $aks := dict "control-plane" (list "true") "kubernetes.azure.com/managedby" (list "aks") }}
  {{- $labels = merge $labels $aks }}
{{- end }}
{{- dict "excludedNamespaces" $given.excludedNamespaces "excludedNamespaceLabels" $labels "webhooks" $webhooks | toYaml }}
{{- end }}

{{- /* The given values of OpenKruise's chart that have no effect here, separated by commas. */ -}}
{{- define "kruise.withoutEffect" -}}
{{- $found := list }}
{{- range $path := list "daemon.enablePprof" "daemon.pprofAddr" "helmHooks" "enableKubeCacheMutationDetector" "manager.pprofAddr" "manager.resyncPeriod" }}
  {{- $at := $.Values }}
  {{- $there := true }}
  {{- range $key := splitList "." $path }}
    {{- if and $there (kindIs "map" $at) (hasKey $at $key) }}
      {{- $at = get $at $key }}
    {{- else }}
      {{- $there = false }}
    {{- end }}
  {{- end }}
  {{- if $there }}
    {{- $found = append $found $path }}
  {{- end }}
{{- end }}
{{- join ", " $found }}
{{- end }}

{{- /* Fails if this release would delete a CustomResourceDefinition: (list $ name). */ -}}
{{- define "kruise.refuseToDrop" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $live) $root.Release.Name }}
  {{- fail (printf "crds.managed=false would delete CustomResourceDefinition %s and all its objects; to keep it, first run: kubectl annotate crd %s meta.helm.sh/release-name- helm.sh/resource-policy=keep" $name $name) }}
{{- end }}
{{- end }}
