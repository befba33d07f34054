# The controller on the API server of api-server.sh: its rights as the chart gives them, and nodes, volumes and reports to play with. Sourced, never run. The
# program must be built with the feature hwtests, which shortens its durations. `duties` names other duties than claims and shared-drives, `templates` more
# templates of the chart than fleet, `chart_values` more values, `carry_out` the namespaces in which approved actions are carried out, separated by commas.
duties=${duties:-claims,shared-drives}
listen=$(port)
# Before 1.37 claims have no health.
minor=$(kube version -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["serverVersion"]["minor"].rstrip("+"))')
keeps_claims() { [ "$minor" -ge 37 ]; }
kube create namespace storage >/dev/null; kube create namespace shop >/dev/null
"$bin/diskvitals-fleet" crds | kube apply -f - >/dev/null
kube wait --for=condition=Established crd/nodestorages.diskvitals.io --timeout=60s >/dev/null
render() {
    "$TOOLS/bin/helm" template dv helm/diskvitals --namespace storage --kube-version "1.$minor.0" --values helm/diskvitals/ci/fleet.yaml --set "fleet.duties={$duties}${chart_values:+,$chart_values}" \
        --set-json "fleet.carryOut.namespaces=[${carry_out:+\"${carry_out//,/\",\"}\"}]" --show-only "templates/$1.yaml"
}
for template in fleet ${templates:-}; do render $template | kube apply --namespace storage -f - >/dev/null; done
# Its objects name their namespaces.
[ -z "${carry_out:-}" ] || render carry-out | kube apply -f - >/dev/null
kube create token dv-diskvitals-fleet --namespace storage --duration 2h >"$scratch/token"
cat >"$scratch/kubeconfig" <<END
{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "$server", certificate-authority: $scratch/ca.crt}}],
 users: [{name: u, user: {tokenFile: $scratch/token}}], contexts: [{name: c, context: {cluster: c, user: u, namespace: storage}}]}
END

# node NAME READY, claim NAME [PV], volume NAME NODE, report NODE JSON-OF-STATUS
node() {
    kube create -f - <<<"{apiVersion: v1, kind: Node, metadata: {name: $1, labels: {kubernetes.io/hostname: $1}}}" >/dev/null 2>&1 || true
    kube patch node "$1" --subresource=status --type=merge -p "{\"status\": {\"conditions\": [{\"type\": \"Ready\", \"status\": \"$2\"}]}}" >/dev/null
}
claim() { kube create -n shop -o 'jsonpath={.metadata.uid}' -f - <<<"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: $1}, spec: {volumeName: ${2:-none}, storageClassName: '', accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"; }
# pv NAME NODE HANDLE CLAIM-REF
pv() {
    kube create -f - >/dev/null <<<"{apiVersion: v1, kind: PersistentVolume, metadata: {name: $1}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: csi.example.com, volumeHandle: $3}, claimRef: $4,
        nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$2]}]}]}}}}"
}
volume() { pv "$1" "$2" "h-$1" "{kind: PersistentVolumeClaim, namespace: shop, name: claim-$1, uid: $(claim "claim-$1" "$1")}"; }
set_report() { # NODE UID JSON-OF-STATUS
    kube create -f - >/dev/null 2>&1 <<<"{apiVersion: diskvitals.io/v1alpha1, kind: NodeStorage, metadata: {name: $1}, spec: {}}" || true
    python3 - "$2" "$3" >"$scratch/status" <<'PYTHON'
import datetime, json, sys
now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
status = {"nodeUID": sys.argv[1], "reportedAt": now, "health": "Good", "counts": {}, "driveIDs": [], "models": [], "drives": [], "volumes": [], "stale": [], "truncated": {},
          "conditions": [{"type": "DaemonReachable", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                         {"type": "AttachmentsClean", "status": "True", "reason": "NothingStale", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
status.update(json.loads(sys.argv[2]))
# Not merged: what the last report had must go.
print(json.dumps([{"op": "add", "path": "/status", "value": status}]))
PYTHON
    kube patch nodestorage "$1" --subresource=status --type=json --patch-file "$scratch/status" >/dev/null
}
uid_of() { kube get node "$1" -o 'jsonpath={.metadata.uid}'; }
report() { set_report "$1" "$(uid_of "$1")" "$2"; }
bad() { printf '{"health": "Bad", "driveIDs": ["naa.%s"], "drives": [{"id": "naa.%s", "name": "sda", "model": "", "serial": "", "health": "Bad", "reason": "DriveOffline"}], "volumes": [{"driver": "csi.example.com", "handle": "h-%s", "health": "Bad",
    "redundant": false, "driveIDs": ["naa.%s"], "healthConditions": [{"status": "Inaccessible", "reason": "DriveOffline", "message": "drive sda is offline"}]}]}' "$1" "$1" "$2" "$1"; }
health() { kube get pvc -n shop "claim-$1" -o 'jsonpath={range .status.healthStatus.healthConditions[*]}{.status}/{.reason} {end}'; }
has() { [ "$(health "$1")" = "$2" ]; }
event() { kube get events --all-namespaces --field-selector "reason=$1" -o 'jsonpath={.items[*].regarding.kind}{.items[*].involvedObject.kind}' | grep -q "$2"; }
timing=unavailable=3,shared=2,keep=4,absent=2,retention=2,refused=5,probe=5,lease=6
fleet() { # NAME [ARGUMENTS…]: `last` is its process
    local name=$1; shift
    KUBECONFIG=$scratch/kubeconfig DISKVITALS_FLEET_TIMING=$timing \
        "$bin/diskvitals-fleet" --duties "$duties" --lease-name dv-diskvitals-fleet --log-format text "$@" 2>>"$scratch/$name.log" & last=$!; started+=($!)
}

# What the controller's token may do. expect CODE TEXT WHAT CURL-ARGUMENTS…: the API server answers with the code, and its answer has the text.
ask() { curl -sS --cacert "$scratch/ca.crt" -H "Authorization: Bearer $(<"$scratch/token")" -o "$scratch/answer" -w '%{http_code}' "$@"; }
expect() {
    local code=$1 text=$2 what=$3 got; shift 3
    got=$(ask "$@")
    [ "$got" = "$code" ] && grep -qF -- "$text" "$scratch/answer" || wrong "$what: $got instead of $code ($text): $(<"$scratch/answer")"
    printf '%s  %s\n' "$got" "$what"
}
merge=(-X PATCH -H 'Content-Type: application/merge-patch+json') post=(-X POST -H 'Content-Type: application/json')
