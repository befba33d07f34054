# A real API server (with etcd, without a kubelet and without controllers). Sourced, never run: `programs` names the folder of kube-apiserver and kubectl, `meaning` what
# a failure means, `gates` the feature gates, if any, `audited=true` that $scratch/audit.json has a line for each request, or for those of `audit_rules`. Afterwards there are `server`, `scratch` (with ca.crt), `apiserver` and `etcd_process` (their processes), `started` (processes that end with the script), `kube`, kubectl as an administrator,
# and `serve GATES` and `store`, which start the API server and etcd again after their end.
bin=${DISKVITALS_BIN:-${CARGO_TARGET_DIR:-target}/debug}
scratch=$(mktemp -d); started=()
finish() {
    for process in "${started[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT
wrong() { printf '%s\n' "$*"; for log in "$scratch"/*.log; do [ ! -s "$log" ] || printf -- '-- %s\n' "$log"; tail -n 15 "$log" 2>/dev/null || true; done; die "$meaning"; }
# until_so WHAT COMMAND…: within a minute, or `patience` seconds.
until_so() {
    local what=$1 end=$((SECONDS + ${patience:-60})) begin=$SECONDS; shift
    until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || wrong "not within ${patience:-60} s: $what"; sleep 0.2; done
    printf '%2d s  %s\n' $((SECONDS - begin)) "$what"
}
# never_so WHAT SECONDS COMMAND…
never_so() {
    local what=$1 end=$((SECONDS + $2)); shift 2
    while [ $SECONDS -lt $end ]; do ! "$@" >/dev/null 2>&1 || wrong "it happened: $what"; sleep 0.5; done
    printf 'ok    not: %s\n' "$what"
}
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

etcd=$(port) peer=$(port) api=$(port)
(
    cd "$scratch"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt
    openssl genrsa -out accounts.key 2048 && openssl rsa -in accounts.key -pubout -out accounts.pub
    for name in server admin; do
        subject=/CN=server; [ $name = server ] || subject=/O=system:masters/CN=admin
        openssl req -newkey rsa:2048 -nodes -subj $subject -keyout $name.key -out $name.csr
        openssl x509 -req -days 2 -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out $name.crt -extfile <(echo subjectAltName=IP:127.0.0.1)
    done
) >"$scratch/keys.log" 2>&1
# store: etcd starts, also again after its end.
store() {
    etcd --data-dir "$scratch/etcd" --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" --listen-peer-urls "http://127.0.0.1:$peer" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" >>"$scratch/etcd.log" 2>&1 & etcd_process=$!; started+=($!)
}
store
server=https://127.0.0.1:$api
kube() { "$programs/kubectl" --kubeconfig /dev/null --server "$server" --certificate-authority "$scratch/ca.crt" --client-certificate "$scratch/admin.crt" --client-key "$scratch/admin.key" "$@"; }
arguments=()
if [ "${audited:-}" = true ]; then
    printf '{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [%s]}\n' "${audit_rules:-{\"level\": \"Metadata\"\}}" >"$scratch/audit-policy"
    arguments=(--audit-policy-file="$scratch/audit-policy" --audit-log-path="$scratch/audit.json")
fi
# serve [GATES]
serve() {
    "$programs/kube-apiserver" --etcd-servers="http://127.0.0.1:$etcd" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$api" --cert-dir="$scratch" \
        --endpoint-reconciler-type=none --service-cluster-ip-range=10.96.0.0/24 --authorization-mode=RBAC --feature-gates="${1:-}" --client-ca-file="$scratch/ca.crt" \
        --tls-cert-file="$scratch/server.crt" --tls-private-key-file="$scratch/server.key" --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$scratch/accounts.pub" --service-account-signing-key-file="$scratch/accounts.key" "${arguments[@]}" >>"$scratch/apiserver.log" 2>&1 & apiserver=$!; started+=($!)
    until_so "the API server is ready" kube get --raw /readyz
}
serve "${gates:-}"
