# Shared by the scripts beside it: versions, folders, ports of the lab, and processes in the background. Sourced, never run.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

# The release of the control plane and the kubelet.
RELEASE=1.37.1
# Of a kubelet that knows the old VolumeCondition alone, and of an API server whose claims have no health.
OLDER=1.36.3

# Short, because unix sockets lie below it (107 bytes).
LAB=${DISKVITALS_KUBERNETES_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/diskvitals-lab}
RUN=$LAB/run
# The same path on each node: the chart has one value for all. Each node has its own directory there.
KUBELET_ROOT=$RUN/kubelet
# Of the control plane and of node 1, where every other node finds it; 192.0.2.0/24 is for examples, and leaves the lab nowhere.
API_ADDRESS=192.0.2.1
# Which node this is: 1 has the control plane and the tests. `cluster node` starts the others.
NUMBER=${DISKVITALS_LAB_NODE:-1}
if [ "$NUMBER" = 1 ]; then
    AT=$RUN SUFFIX='' CGROUP=diskvitals-lab API_HOST=127.0.0.1
    # An address as its name: the kubelet then takes the loopback's as its own, which it refuses as --node-ip.
    NODE=127.0.0.1 ADDRESS=127.0.0.1
else
    AT=$RUN/node-$NUMBER SUFFIX=-$NUMBER CGROUP=diskvitals-lab-$NUMBER API_HOST=$API_ADDRESS
    NODE=node-$NUMBER ADDRESS=192.0.2.$NUMBER
fi
CONTAINERD=$AT/containerd.sock

API_PORT=26443
ETCD_PORT=22379
ETCD_PEER_PORT=22380
KUBELET_PORT=20250
KUBELET_HEALTH_PORT=20248
MANAGER_PORT=20257
SCHEDULER_PORT=20259

export KUBECONFIG=$RUN/pki/admin$SUFFIX.kubeconfig
kubectl() { "$LAB/$RELEASE/kubectl" "$@"; }
ctr() { command ctr --address "$CONTAINERD" --namespace k8s.io "$@"; }

# start NAME COMMAND...: in the background, its output in $RUN/log/NAME.log.
start() {
    local name=$1 open; shift
    (
        # Whoever called may hold a lock by a descriptor: what runs on must not keep it.
        for open in /proc/"$BASHPID"/fd/*; do
            open=${open##*/}
            if [ "$open" -gt 2 ]; then eval "exec $open>&-"; fi
        done
        exec setsid "$@" >>"$RUN/log/$name.log" 2>&1 </dev/null
    ) &
    echo $! >"$RUN/pids/$name"
}
runs() { [ -r "$RUN/pids/$1" ] && kill -0 "$(<"$RUN/pids/$1")" 2>/dev/null; }
ended() { ! runs "$1"; }
# stop NAME: terminated, and killed if it does not end.
stop() {
    runs "$1" || return 0
    kill "$(<"$RUN/pids/$1")"
    within 20 ended "$1" || kill -KILL "$(<"$RUN/pids/$1")"
}
# within SECONDS COMMAND...: until it succeeds.
within() {
    local deadline=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || return 1
        sleep 0.1
    done
}
# started NAME SECONDS COMMAND...: waits for it, and shows its log when it does not come.
started() {
    local name=$1 seconds=$2; shift 2
    within "$seconds" "$@" || { tail -n 40 "$RUN/log/$name.log" >&2; die "$name: not within $seconds s: $*"; }
}
