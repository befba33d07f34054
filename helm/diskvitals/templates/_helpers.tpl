{{- define "diskvitals.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 34 | trimSuffix "-" -}}
{{- end -}}

{{- define "diskvitals.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 34 | trimSuffix "-" -}}
{{- else if contains (include "diskvitals.name" .) .Release.Name -}}
{{- .Release.Name | trunc 34 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "diskvitals.name" .) | trunc 34 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of one part: dict "root" $ "part" "daemon". */}}
{{- define "diskvitals.selector" -}}
app.kubernetes.io/name: {{ include "diskvitals.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "diskvitals.labels" -}}
{{ include "diskvitals.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "diskvitals.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* What all pods have in common. dict "root" $ "part" …. */}}
{{- define "diskvitals.podMetadata" -}}
labels:
  {{- include "diskvitals.labels" . | nindent 2 }}
  {{- with .perLabel }}{{ printf "diskvitals.io/per-label: %s" (quote .) | nindent 2 }}{{ end }}
  {{- if .interposer }}{{ "diskvitals.io/interposer: \"true\"" | nindent 2 }}{{ end }}
  {{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "diskvitals.placement" -}}
priorityClassName: {{ .Values.priorityClassName }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- end -}}

{{/* A label's value as a part of names. Two values with the same one are refused (diskvitals.check). */}}
{{- define "diskvitals.labelSlug" -}}
{{- regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trunc 20 | trimAll "-" -}}
{{- end -}}

{{/* The values, with an affinity that excludes the nodes of daemon.perLabel. */}}
{{- define "diskvitals.unlabeled" -}}
{{- $other := dict "key" .Values.daemon.perLabel.key "operator" "NotIn" "values" (keys .Values.daemon.perLabel.config | sortAlpha) }}
{{- $terms := list }}
{{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) .Values.affinity }}
{{- $terms = append $terms (merge (dict "matchExpressions" (append (.matchExpressions | default list) $other)) .) }}
{{- end }}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $affinity := mergeOverwrite (deepCopy .Values.affinity) (dict "nodeAffinity" $required) }}
{{- dict "Values" (merge (dict "affinity" $affinity) (omit .Values "affinity")) | toYaml }}
{{- end -}}

{{/* No privilege, as for any container of the shim's pods. dict "user" 65532. */}}
{{- define "diskvitals.unprivileged" -}}
runAsUser: {{ .user }}
runAsGroup: {{ .group | default .user }}
{{- if .user }}
runAsNonRoot: true
{{- end }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]{{ with .add }}, add: [{{ . }}]{{ end }}}
{{- end -}}

{{/* The callers of the agent's socket besides root: the shim may do everything, the reporter and the
interposers may read, as may diskvitals-notify. An interposer that is root by name is in the readers' group. */}}
{{- define "diskvitals.callers" -}}
{{- $readers := list (int64 .Values.report.runAsUser) -}}
{{- if .Values.notify.enabled }}{{ $readers = append $readers (int64 .Values.notify.runAsUser) }}{{ end -}}
{{- range .Values.interposers }}{{ if .runAsUser }}{{ $readers = append $readers (int64 .runAsUser) }}{{ end }}{{ end -}}
allow_uids = [{{ if .Values.shim.enabled }}{{ int64 .Values.shim.runAsUser }}{{ end }}]
read_uids = [{{ $readers | uniq | join ", " }}]
read_gids = [{{ int64 .Values.report.runAsUser }}]
{{- end -}}

{{- define "diskvitals.podSecurity" -}}
seccompProfile: {type: RuntimeDefault}
{{- with .seLinuxType }}
seLinuxOptions: {type: {{ . }}}
{{- end }}
{{- end -}}

{{/* A token for one container alone: the pods' own are not mounted. */}}
{{- define "diskvitals.tokenMount" -}}
name: api-token
mountPath: /var/run/secrets/kubernetes.io/serviceaccount
readOnly: true
{{- end -}}

{{- define "diskvitals.tokenVolume" -}}
name: api-token
projected:
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end -}}

{{- define "diskvitals.apiServer" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
{{- end }}
{{- with .Values.apiServer.port }}
- {name: KUBERNETES_SERVICE_PORT, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- define "diskvitals.toApiServer" -}}
- ports:
    {{- $ports := list }}
    {{- range append (.Values.networkPolicy.apiServerPorts | default list) .Values.apiServer.port }}{{ with . }}{{ $ports = append $ports (int .) }}{{ end }}{{ end }}
    {{- range $ports | uniq }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* A driver's name as a part of names: short. Two drivers with the same one are refused (diskvitals.check). */}}
{{- define "diskvitals.slug" -}}
{{- $slug := . | lower | replace "." "-" -}}
{{- if gt (len $slug) 24 -}}
{{- printf "%s-%s" ($slug | trunc 15 | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- $slug -}}
{{- end -}}
{{- end -}}

{{- define "diskvitals.pluginDir" -}}
{{ .Values.kubeletRoot }}/plugins/{{ .Values.driver.name }}
{{- end -}}

{{/* Relabeling of the scraped series. */}}
{{- define "diskvitals.relabelings" -}}
# The alerts use this job name; the instance is the name of the node.
- {targetLabel: job, replacement: diskvitals}
- {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: instance}
# The labels pod and namespace name the user of a volume, and the instance is the node: not the scraped pod.
- {action: labeldrop, regex: namespace|pod|container|endpoint|service}
{{- end -}}

{{/* The accounts that the admission policies of reporters concern, and the node that its token was made for: as the API server states it (Kubernetes 1.30 and later). */}}
{{- define "diskvitals.ofReporter" -}}
matchConditions:
  - name: of-a-reporter
    expression: request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "diskvitals.fullname" . }}-report'
variables:
  {{- include "diskvitals.nodeOfToken" . | nindent 2 }}
{{- end -}}

{{/* The account of a sidecar that admission policies concern; with isOnNode, and the node of its token. */}}
{{- define "diskvitals.ofSidecar" -}}
matchConditions:
  - name: of-the-sidecar
    expression: request.userInfo.username == 'system:serviceaccount:{{ .root.Release.Namespace }}:{{ .account }}'
variables:
{{- if .isOnNode }}
  {{- include "diskvitals.nodeOfToken" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Whether an expression is this node's value of the topology key, as diskvitals-csi makes it (csi::topology): a name of more than 63 characters is its beginning and a hash, which
no expression can compute. */}}
{{- define "diskvitals.isOwnTopology" -}}
({{ . }} == variables.node || size(variables.node) > 63 && {{ . }}.startsWith(variables.node.substring(0, 30).replace('.', '-') + '-') && {{ . }}.substring(30).matches('^-[0-9a-f]{32}$'))
{{- end -}}

{{- define "diskvitals.nodeOfToken" -}}
- name: node
  expression: >-
    has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra
    ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''
{{- end -}}

{{- define "diskvitals.ownNode" -}}
- expression: variables.node != ''
  message: the token is bound to no node
{{- end -}}

{{/* Variables of a policy on the status of nodes: the conditions but those that are named. */}}
{{- define "diskvitals.otherConditions" -}}
- name: others
  expression: "!has(object.status) || !has(object.status.conditions) ? [] : object.status.conditions.filter(c, !(c.type in [{{ . }}]))"
- name: othersBefore
  expression: "!has(oldObject.status) || !has(oldObject.status.conditions) ? [] : oldObject.status.conditions.filter(c, !(c.type in [{{ . }}]))"
{{- end -}}

{{/* Validations of such a policy: nothing but conditions changes. */}}
{{- define "diskvitals.onlyConditions" -}}
{{- $who := . }}
{{- range list "addresses" "allocatable" "capacity" "config" "daemonEndpoints" "declaredFeatures" "features" "images" "nodeInfo" "phase" "runtimeHandlers" "volumesAttached" "volumesInUse" }}
- expression: has(object.status.{{ . }}) == has(oldObject.status.{{ . }}) && (!has(object.status.{{ . }}) || object.status.{{ . }} == oldObject.status.{{ . }})
  message: {{ $who }} changes nothing of a node's status but a condition, not {{ . }}
{{- end }}
{{- range list "labels" "annotations" "finalizers" "ownerReferences" }}
- expression: has(object.metadata.{{ . }}) == has(oldObject.metadata.{{ . }}) && (!has(object.metadata.{{ . }}) || object.metadata.{{ . }} == oldObject.metadata.{{ . }})
  message: {{ $who }} changes nothing of a node but a condition, not its {{ . }}
{{- end }}
{{- end -}}

{{/* The account that the admission policies of the controller concern. */}}
{{- define "diskvitals.ofFleet" -}}
matchConditions:
  - name: of-the-controller
    expression: request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "diskvitals.fullname" . }}-fleet'
{{- end -}}

{{/* Values that a schema cannot compare. */}}
{{- define "diskvitals.check" -}}
{{- if and .Values.provisioner.enabled (not .Values.shim.enabled) }}{{ fail "provisioner.enabled needs shim.enabled" }}{{ end }}
{{- if and .Values.provisioner.enabled (not .Values.provisioner.image) }}{{ fail "provisioner.enabled needs provisioner.image: where your mirror has csi-provisioner" }}{{ end }}
{{- if and .Values.resizer.enabled (not .Values.shim.enabled) }}{{ fail "resizer.enabled needs shim.enabled" }}{{ end }}
{{- if and .Values.resizer.enabled (not .Values.resizer.image) }}{{ fail "resizer.enabled needs resizer.image: where your mirror has csi-resizer" }}{{ end }}
{{- if and .Values.healthMonitor.enabled (not .Values.shim.enabled) }}{{ fail "healthMonitor.enabled needs shim.enabled" }}{{ end }}
{{- if and .Values.healthMonitor.enabled (not .Values.healthMonitor.image) }}{{ fail "healthMonitor.enabled needs healthMonitor.image: where your mirror has csi-external-health-monitor-controller" }}{{ end }}
{{- if and .Values.healthMonitor.nodeWatcher.enabled (not .Values.healthMonitor.enabled) }}{{ fail "healthMonitor.nodeWatcher.enabled needs healthMonitor.enabled" }}{{ end }}
{{- if and .Values.healthMonitor.enabled (eq .Values.driver.healthApi "health") }}{{ fail "healthMonitor knows VolumeCondition only: driver.healthApi must be both or condition" }}{{ end }}
{{- if and .Values.notify.enabled (not .Values.notify.config) }}{{ fail "notify.enabled needs notify.config: where messages go (docs/notifications.md)" }}{{ end }}
{{- range concat (list .Values.daemon.config) (values .Values.daemon.perNode) (values .Values.daemon.perLabel.config) }}
{{- if regexMatch "(?m)^[ \\t]*\\[+[ \\t]*(csi|pool)[ \\t]*[.\\]]" . }}{{ fail "daemon.config: [csi] and [pool] are written from the values `driver` and `pool`" }}{{ end }}
{{- end }}
{{- if and .Values.daemon.perLabel.config (not .Values.daemon.perLabel.key) }}{{ fail "daemon.perLabel.config needs daemon.perLabel.key: the nodes' label" }}{{ end }}
{{- if hasKey .Values.nodeSelector (.Values.daemon.perLabel.key | default "-") }}{{ fail "daemon.perLabel.key is in nodeSelector: all nodes would have one value" }}{{ end }}
{{- $labels := dict }}
{{- range keys .Values.daemon.perLabel.config | sortAlpha }}
{{- $slug := include "diskvitals.labelSlug" . }}
{{- with get $labels $slug }}{{ fail (printf "daemon.perLabel.config: %s is no different in the names of objects" .) }}{{ end }}
{{- $labels = set $labels $slug . }}
{{- end }}
{{- if and (or .Values.daemon.config .Values.daemon.perNode .Values.daemon.perLabel.config) (not .Values.daemon.enabled) }}{{ fail "daemon.config has no effect with daemon.enabled=false: the daemon of the host reads its own file" }}{{ end }}
{{- if and .Values.metrics.enabled (not .Values.daemon.enabled) }}{{ fail "metrics.enabled has no effect with daemon.enabled=false: set them in the host's own configuration" }}{{ end }}
{{- if and .Values.metrics.enabled .Values.hostNetwork (not .Values.metrics.address) }}{{ fail "metrics.address: with hostNetwork every client that reaches the node could read them: name one address" }}{{ end }}
{{- if has .Values.metrics.address (list "0.0.0.0" "[::]") }}{{ fail "metrics.address: the daemon refuses to listen everywhere: leave it empty for the pod's own" }}{{ end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled }}{{ fail "metrics.podMonitor or metrics.serviceMonitor: with both each daemon is scraped twice" }}{{ end }}
{{- range list "podMonitor" "serviceMonitor" }}
{{- if and (index $.Values.metrics .).enabled (not $.Values.metrics.enabled) }}{{ fail (printf "metrics.%s.enabled needs metrics.enabled" .) }}{{ end }}
{{- end }}
{{- if .Values.metrics.prometheusRule.enabled }}
{{- range prepend .Values.metrics.prometheusRule.also "diskvitals" }}
{{- if not ($.Files.Get (printf "files/alerts/%s.rules.yaml" .)) }}{{ fail (printf "metrics.prometheusRule: this chart carries no rules %s (files/alerts)" .) }}{{ end }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.dashboard.enabled (not (.Files.Glob "files/dashboards/*.json")) }}{{ fail "metrics.dashboard.enabled: this chart carries no dashboard (files/dashboards)" }}{{ end }}
{{- range .Values.storageClasses }}
{{- if and (eq .kind "lvm") (not $.Values.pool.volumeGroup) $.Values.daemon.enabled }}{{ fail (printf "storageClasses: %s is of kind lvm, which needs pool.volumeGroup" .name) }}{{ end }}
{{- end }}
{{- $slugs := dict }}
{{- range .Values.interposers }}
{{- $slug := include "diskvitals.slug" .driver }}
{{- with get $slugs $slug }}{{ fail (printf "interposers: %s is there already, or is no different in the names of objects" .) }}{{ end }}
{{- $slugs = set $slugs $slug .driver }}
{{- if and (eq .driver $.Values.driver.name) $.Values.shim.enabled }}{{ fail (printf "interposers: %s is the driver of diskvitals itself" .driver) }}{{ end }}
{{- end }}
{{- if and (or .Values.report.events .Values.report.conditions .Values.report.storageFailed .Values.report.storage) (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}{{ fail "report needs Kubernetes 1.30, whose admission policies tie it to its node: report.events=false, and conditions, storageFailed and storage off" }}{{ end }}
{{- if and .Values.report.answerChallenges (not .Values.report.storage) }}{{ fail "report.answerChallenges needs report.storage: the answer is a part of that object" }}{{ end }}
{{- if and .Values.report.cleanStale (not .Values.report.storage) }}{{ fail "report.cleanStale needs report.storage: the quarantine is a part of that object" }}{{ end }}
{{- if and .Values.fleet.enabled (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) }}{{ fail "fleet needs Kubernetes 1.30, whose admission policies bound its rights: fleet.enabled=false" }}{{ end }}
{{- if and .Values.fleet.carryOut.namespaces (not (and .Values.fleet.enabled (has "release" .Values.fleet.duties))) }}{{ fail "fleet.carryOut.namespaces needs fleet.enabled and the duty release in fleet.duties: without it there is no action to carry out" }}{{ end }}
{{- if eq .Values.fleet.uncleanTaint .Values.fleet.unreachableTaint }}{{ fail "fleet.uncleanTaint and fleet.unreachableTaint are the same key" }}{{ end }}
{{- if and .Values.fleet.evictUnreachable (not (has "unreachable" .Values.fleet.duties)) }}{{ fail "fleet.evictUnreachable needs the duty unreachable in fleet.duties" }}{{ end }}
{{- if and .Values.fleet.enabled (not .Values.fleet.duties) }}{{ fail "fleet.enabled needs fleet.duties: claims, shared-drives, release" }}{{ end }}
{{- if not (or .Values.daemon.enabled .Values.shim.enabled .Values.interposers .Values.report.events .Values.report.conditions .Values.report.storageFailed .Values.report.storage) }}{{ fail "nothing is enabled: neither daemon nor shim nor interposers nor report" }}{{ end }}
{{- end -}}

{{- /* A Deployment's pod: not tied to its node. A configured priority class, or none, applies to it as well. */}}
{{- define "diskvitals.placementAnywhere" -}}
{{- $values := omit .Values "tolerations" }}
{{- $class := eq .Values.priorityClassName "system-node-critical" | ternary "system-cluster-critical" .Values.priorityClassName }}
{{- include "diskvitals.placement" (dict "Values" (merge (dict "priorityClassName" $class) $values)) }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A shim for a sidecar that runs once in the cluster: on a socket of its own, unknown to the kubelet. */}}
{{- define "diskvitals.separateShim" -}}
{{- with .root -}}
image: {{ include "diskvitals.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/local/bin/diskvitals-csi]
args:
  {{- range $.args }}
  - {{ . }}
  {{- end }}
  - --endpoint=unix:///csi/csi.sock
  - --agent=/run/diskvitals/csi/agent.sock
  - --driver-name={{ .Values.driver.name }}
  - --node-id=$(NODE_NAME)
  - --topology-key={{ .Values.driver.topologyKey }}
  - --log-format={{ .Values.shim.logFormat }}
env:
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
securityContext:
  {{- include "diskvitals.unprivileged" (dict "user" (.Values.shim.runAsUser | int64)) | nindent 2 }}
resources:
  {{- toYaml .Values.shim.resources | nindent 2 }}
volumeMounts:
  - {name: socket, mountPath: /csi}
  - {name: agent, mountPath: /run/diskvitals/csi, readOnly: true}
{{- end }}
{{- end }}

{{- define "diskvitals.separateShimVolumes" -}}
- {name: socket, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: agent, hostPath: {path: {{ .Values.daemon.runDir }}/csi, type: DirectoryOrCreate}}
{{- end }}
