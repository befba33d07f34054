# A cluster in which claims are released: the API server of api-server.sh, with the controllers that create claims and pods anew, the scheduler, the duty release with its rights, and nodes
# that release_cluster.py plays. Sourced, never run, with `programs` and `meaning` as there. Afterwards `world` changes what the nodes are like, and `releasing` runs a controller.
# One line for each request that deletes a claim, ends a pod or changes a volume or an action.
audit_rules='
  {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/eviction"]}]},
  {"level": "Metadata", "verbs": ["delete", "deletecollection"], "resources": [{"group": "", "resources": ["persistentvolumeclaims", "persistentvolumes", "pods"]}]},
  {"level": "Metadata", "verbs": ["patch", "update"], "resources": [{"group": "", "resources": ["persistentvolumes"]}]},
  {"level": "Metadata", "verbs": ["create", "patch", "delete"], "resources": [{"group": "diskvitals.io", "resources": ["storageactions", "storageactions/status"]}]},
  {"level": "None"}'
audited=true
. hwtests/kubernetes/api-server.sh
duties=release templates=approver carry_out=shop
. hwtests/kubernetes/fleet.sh
cat >"$scratch/admin" <<END
{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "$server", certificate-authority: $scratch/ca.crt}}],
 users: [{name: u, user: {client-certificate: $scratch/admin.crt, client-key: $scratch/admin.key}}], contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}]}
END
# Without the life cycle of nodes: nobody renews their leases.
"$programs/kube-controller-manager" --kubeconfig="$scratch/admin" --authentication-kubeconfig="$scratch/admin" --authorization-kubeconfig="$scratch/admin" --bind-address=127.0.0.1 \
    --secure-port="$(port)" --cert-dir="$scratch" --leader-elect=false --concurrent-statefulset-syncs=2 \
    --controllers=statefulset-controller,persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,disruption-controller,garbage-collector-controller \
    >"$scratch/manager.log" 2>&1 & started+=($!)
"$programs/kube-scheduler" --kubeconfig="$scratch/admin" --authentication-kubeconfig="$scratch/admin" --authorization-kubeconfig="$scratch/admin" --bind-address=127.0.0.1 \
    --secure-port="$(port)" --cert-dir="$scratch" --leader-elect=false >"$scratch/scheduler.log" 2>&1 & started+=($!)
export LAB_SCRATCH=$scratch LAB_SERVER=$server LAB_BIN=$bin PYTHONDONTWRITEBYTECODE=1
world() { python3 hwtests/kubernetes/release_cluster.py "$@"; }
timing=hold=1,node-ready=1,daemon-age=1,controller-age=1,round=1,reread=1,ask=2,good=2,lease=3,lease-left=1
# releasing NAME [ARGUMENTS…]: `last` is its process
releasing() { local name=$1; shift; fleet "$name" --carry-out-in shop "$@"; }
world setup
