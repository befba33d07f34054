#!/usr/bin/env python3
"""A cluster in which claims are released: a real API server, controller manager and scheduler (release-cluster.sh starts them), and nodes whose kubelets and daemons are played here.

Kubelets: a pod is Ready while none of its volumes is on a dead drive, and ends when it is deleted, unless its processes hang. Daemons: reports, and answers to questions.
The state is a file, so that a script can change it while `play` runs:
    release_cluster.py setup | play | fail POD | replace POD | approve"""
import datetime, http.client, json, os, select, socket, ssl, sys, threading, time

SCRATCH = os.environ["LAB_SCRATCH"]
SERVER = os.environ["LAB_SERVER"].removeprefix("https://")
NODES = ["a", "b", "c", "d"]
GROUP = "/apis/diskvitals.io/v1alpha1"
CORE = "/api/v1"
SHOP = f"{CORE}/namespaces/shop"
ACTIONS = f"{GROUP}/namespaces/shop/storageactions"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Failure(Exception):
    """What should not be."""


class Api:
    """The API server, as an administrator. One connection for each thread."""

    def __init__(self):
        self.context = ssl.create_default_context(cafile=f"{SCRATCH}/ca.crt")
        self.context.load_cert_chain(f"{SCRATCH}/admin.crt", f"{SCRATCH}/admin.key")
        self.local = threading.local()

    def call(self, method, path, body=None, content="application/json"):
        """Code and answer. A connection that the server has closed is opened once more."""
        for attempt in (1, 2):
            if getattr(self.local, "connection", None) is None:
                self.local.connection = http.client.HTTPSConnection(SERVER, context=self.context, timeout=20)
            try:
                self.local.connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": content})
                answer = self.local.connection.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}
            except (OSError, http.client.HTTPException):
                self.local.connection.close()
                self.local.connection = None
                if attempt == 2:
                    raise

    def get(self, path):
        code, answer = self.call("GET", path)
        if code == 404:
            return None
        return self.expect(code, answer, "GET", path)

    def items(self, path):
        return self.get(path)["items"]

    def create(self, path, body):
        code, answer = self.call("POST", path, body)
        return self.expect(code, answer, "POST", path)

    def merge(self, path, body, may_fail=False):
        code, answer = self.call("PATCH", path, body, "application/merge-patch+json")
        return answer if may_fail else self.expect(code, answer, "PATCH", path)

    def delete(self, path, uid=None, grace=None):
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return self.call("DELETE", path, options)[0]

    @staticmethod
    def expect(code, answer, method, path):
        if code not in (200, 201):
            raise Failure(f"{method} {path}: {code} {answer.get('message', answer)}")
        return answer


class Cluster:
    """What the nodes are like: which drives exist, which are dead, which pods hang."""

    def __init__(self, api):
        self.api = api
        self.path = f"{SCRATCH}/world.json"
        self.lock = threading.RLock()
        # drives: PersistentVolume -> {node, drive, since or None}; gone: drives that another node lists as well.
        self.state = {"drives": {}, "elsewhere": {}, "hung": [], "ready": [], "count": 0}
        self.load()

    def load(self):
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.state = json.load(file)

    def save(self):
        with open(self.path + ".new", "w") as file:
            json.dump(self.state, file)
        os.rename(self.path + ".new", self.path)

    def setup(self):
        api = self.api
        api.create(f"{SHOP}/serviceaccounts", {"metadata": {"name": "default"}})
        api.create("/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": "csi.example.com"}, "spec": {"attachRequired": False}})
        api.create("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "50"}
        for name in NODES:
            api.create(f"{CORE}/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {"taints": []}})
            api.merge(f"{CORE}/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}})
            api.merge(f"{CORE}/nodes/{name}", {"spec": {"taints": None}})
            api.create("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": name}, "spec": {"drivers": [{"name": "csi.example.com", "nodeID": name, "topologyKeys": ["kubernetes.io/hostname"]}]}})
            api.create("/apis/storage.k8s.io/v1/namespaces/storage/csistoragecapacities", {
                "metadata": {"name": name}, "storageClassName": "fast", "capacity": "100Gi", "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": name}}})
            api.create(f"{GROUP}/nodestorages", {"apiVersion": "diskvitals.io/v1alpha1", "kind": "NodeStorage", "metadata": {"name": name}, "spec": {}})
            self.add_volume(name)
        self.report()
        api.create(f"{GROUP}/storagepolicies", {"apiVersion": "diskvitals.io/v1alpha1", "kind": "StoragePolicy", "metadata": {"name": "default"},
            "spec": {"mode": "Propose", "hold": "10m", "minReadyPeers": 2, "budget": {"perDay": {"absolute": 1000}}}})
        self.add_set("db")

    def add_set(self, name):
        label = {"app.kubernetes.io/instance": name}
        # Each on a node of its own, as members of a database are.
        affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": label}}}]}}
        self.api.create("/apis/apps/v1/namespaces/shop/statefulsets", {
            "metadata": {"name": name, "annotations": {"diskvitals.io/empty-member": "rejoins-any"}},
            "spec": {"replicas": 3, "serviceName": name, "podManagementPolicy": "Parallel", "selector": {"matchLabels": label},
                "template": {"metadata": {"labels": label}, "spec": {"affinity": affinity, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "db", "image": "db", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"diskvitals.io/on-dead-drive": "release"}},
                    "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}})

    def add_volume(self, node):
        """A free volume on a drive of its own."""
        with self.lock:
            self.state["count"] += 1
            name = f"pv-{self.state['count']}"
            self.state["drives"][name] = {"node": node, "drive": f"naa.5000c500a1b{self.state['count']:05x}", "since": None}
            self.save()
        self.api.create(f"{CORE}/persistentvolumes", {"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "csi.example.com", "volumeHandle": f"h-{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})

    def volume_of(self, pod):
        return self.api.get(f"{SHOP}/persistentvolumeclaims/data-{pod}")["spec"]["volumeName"]

    def fail(self, pod):
        """The drive below the pod's volume dies."""
        volume = self.volume_of(pod)
        with self.lock:
            self.state["drives"][volume]["since"] = now()
            self.save()
        self.report()
        return volume

    def heal(self, volume):
        """It returns."""
        with self.lock:
            self.state["drives"][volume]["since"] = None
            self.save()
        self.report()

    def set(self, key, value):
        with self.lock:
            self.state[key] = value
            self.save()
        self.report()

    def replace(self, volume, is_retained):
        """Another drive in place of this one. A volume that was retained is deleted, as a person does, and there is a free one."""
        with self.lock:
            drive = self.state["drives"][volume]
            node = drive["node"]
            if is_retained:
                del self.state["drives"][volume]
            else:
                self.state["count"] += 1
                drive.update(drive=f"naa.5000c500a1b{self.state['count']:05x}", since=None)
            self.save()
        if is_retained:
            self.api.delete(f"{CORE}/persistentvolumes/{volume}")
            self.add_volume(node)
        self.report()

    def report(self):
        with self.lock:
            for name in NODES:
                uid = self.api.get(f"{CORE}/nodes/{name}")["metadata"]["uid"]
                drives = {volume: it for volume, it in self.state["drives"].items() if it["node"] == name}
                dead = {volume: it for volume, it in drives.items() if it["since"]}
                status = {"nodeUID": uid, "bootID": "boot", "machineID": f"machine-{name}", "daemonVersion": "1.0.0", "reportedAt": now(), "health": "Bad" if dead else "Good",
                    "counts": {"drives": len(drives), "bad": len(dead)}, "driveIDs": [it["drive"] for it in drives.values()] + self.state["elsewhere"].get(name, []), "models": [], "stale": [],
                    "drives": [{"id": it["drive"], "name": "sda", "model": "M", "serial": "S", "slot": "3", "health": "Bad", "reason": "DriveOffline", "since": it["since"]} for it in dead.values()],
                    "volumes": [{"driver": "csi.example.com", "handle": f"h-{volume}", "health": "Bad", "redundant": False, "driveIDs": [it["drive"]],
                        "healthConditions": [{"status": "Inaccessible", "reason": "DriveOffline", "message": "offline"}]} for volume, it in dead.items()],
                    "truncated": {"drives": False, "volumes": False},
                    "conditions": [{"type": "DaemonReachable", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
                self.api.merge(f"{GROUP}/nodestorages/{name}/status", {"status": status})

    def approve(self, action):
        status = action.get("status", {})
        evidence = status.get("evidenceHash") or action["spec"]["evidenceHash"]
        return self.api.merge(f"{ACTIONS}/{action['metadata']['name']}", {"metadata": {"resourceVersion": action["metadata"]["resourceVersion"]},
            "spec": {"approval": "Approved", "approvedBy": "admin", "approvedAt": now(), "approvedHash": evidence}}, may_fail=True)

    def play(self):
        """One round of kubelets and daemons."""
        claims = {claim["metadata"]["name"]: claim["spec"].get("volumeName", "") for claim in self.api.items(f"{SHOP}/persistentvolumeclaims")}
        for pod in self.api.items(f"{SHOP}/pods"):
            self.play_pod(pod, claims)
        for report in self.api.items(f"{GROUP}/nodestorages"):
            self.play_answer(report)

    def play_pod(self, pod, claims):
        meta, name = pod["metadata"], pod["metadata"]["name"]
        path = f"{SHOP}/pods/{name}"
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            if name not in self.state["hung"]:
                self.api.delete(path, uid=meta["uid"], grace=0)
            return
        volumes = [claims.get(volume["persistentVolumeClaim"]["claimName"], "") for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume]
        is_dead = any(self.state["drives"].get(volume, {}).get("since") for volume in volumes)
        wanted = "False" if is_dead and name not in self.state["ready"] else "True"
        known = {it["type"]: it["status"] for it in pod.get("status", {}).get("conditions", [])}
        if known.get("Ready") != wanted or pod["status"].get("phase") != "Running":
            self.api.merge(f"{path}/status", {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Running", "conditions": [
                {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": wanted}]}}, may_fail=True)

    def play_answer(self, report):
        nonce = (report["spec"].get("challenge") or {}).get("nonce")
        answered = (report.get("status", {}).get("challenge") or {}).get("nonce")
        name = report["metadata"]["name"]
        if nonce == answered:
            return
        answer = None
        if nonce:
            dead = [it["drive"] for it in self.state["drives"].values() if it["node"] == name and it["since"]]
            answer = {"nonce": nonce, "bootID": "boot", "machineID": f"machine-{name}", "settled": True, "inventory": True, "kernelLog": True, "findings": [
                {"id": "f", "reason": "DriveOffline", "status": "Inaccessible", "driveID": drive, "witnesses": ["KernelLog", "Inventory"]} for drive in dead]}
        self.api.merge(f"{GROUP}/nodestorages/{name}/status", {"status": {"challenge": answer}}, may_fail=True)

    def play_for_ever(self):
        """While the API server is away, so are they."""
        while True:
            try:
                self.play()
            except (OSError, http.client.HTTPException, Failure) as error:
                print(f"the nodes wait: {error}", file=sys.stderr, flush=True)
                time.sleep(1)
            time.sleep(0.2)


def all_ready(api, name):
    pods = [pod for pod in api.items(f"{SHOP}/pods") if pod["metadata"]["labels"].get("app.kubernetes.io/instance") == name]
    return len(pods) == 3 and all(
        "deletionTimestamp" not in pod["metadata"] and any(it["type"] == "Ready" and it["status"] == "True" for it in pod.get("status", {}).get("conditions", [])) for pod in pods)


def until(what, seconds, check):
    end = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Proxy(threading.Thread):
    """Between one controller and the API server. At one of the writes that change actions, volumes, claims, pods or reports it ends the controller (before the write, or after it and
    before its answer), or stops it, and sends the write when it goes on."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(f"{SCRATCH}/server.crt", f"{SCRATCH}/server.key")
        self.client = ssl.create_default_context(cafile=f"{SCRATCH}/ca.crt")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "https://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.arm(None, "never", lambda writes: False)

    def arm(self, process, how, match):
        """`match`: of the writes so far, whether the last one is the one."""
        with self.lock:
            self.process, self.how, self.match = process, how, match
            self.writes, self.hit, self.fired, self.go_on = [], None, threading.Event(), threading.Event()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, plain):
        try:
            host, port = SERVER.split(":")
            client = self.server.wrap_socket(plain, server_side=True)
            upstream = self.client.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)
        except OSError:
            plain.close()
            return
        try:
            self.relay(client, upstream)
        except (OSError, ValueError):
            pass
        for it in (client, upstream):
            it.close()

    def relay(self, client, upstream):
        """Requests of HTTP/1.1, one after the other; answers as they come. One thread: a connection of TLS is not for two."""
        data, cut = b"", False
        while True:
            if not client.pending() and not upstream.pending():
                select.select([client, upstream], [], [])
            more = read(client)
            if more == b"":
                return
            data += more or b""
            while request := first_request(data):
                data = data[len(request):]
                cut = self.pass_on(request, upstream) or cut
            answer = read(upstream)
            if answer == b"":
                return
            if answer and cut:
                self.process.kill()
                self.fired.set()
                return
            if answer:
                client.sendall(answer)

    def pass_on(self, request, upstream):
        """True: its answer is not passed on."""
        head, _, body = request.partition(b"\r\n\r\n")
        method, path = (it.decode() for it in head.split(b" ", 2)[:2])
        hit = False
        if is_step(method, path):
            with self.lock:
                self.writes.append(f"{method} {path.split('?')[0]} {step_of(body)}".strip())
                hit = self.hit is None and self.match(self.writes)
                how, process, go_on = self.how, self.process, self.go_on
                if hit:
                    self.hit = self.writes[-1]
                if hit and how in ("before", "stopped"):
                    process.kill() if how == "before" else process.stop()
                    self.fired.set()
            if hit and how == "before":
                raise OSError("the controller was killed")
            if hit and how == "stopped":
                go_on.wait()
        upstream.sendall(request)
        return hit and how == "after"


def read(connection):
    """None: nothing yet."""
    connection.setblocking(False)
    try:
        return connection.recv(65536)
    except ssl.SSLWantReadError:
        return None
    finally:
        connection.setblocking(True)


def first_request(data):
    head, end, body = data.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    length = lengths[0] if lengths else 0
    return head + end + body[:length] if end and len(body) >= length else b""


def is_step(method, path):
    return method in ("POST", "PUT", "PATCH", "DELETE") and "dryRun" not in path and any(
        it in path for it in ("/storageactions", "/persistentvolumes", "/persistentvolumeclaims", "/eviction", "/nodestorages"))


def step_of(body):
    try:
        return json.loads(body).get("status", {}).get("step", "")
    except (ValueError, AttributeError):
        return ""


def main():
    api = Api()
    cluster = Cluster(api)
    match sys.argv[1:]:
        case ["setup"]:
            cluster.setup()
        case ["play"]:
            threading.Thread(target=cluster.play_for_ever, daemon=True).start()
            while True:
                time.sleep(0.3)
                cluster.load()
        case ["fail", pod]:
            print(cluster.fail(pod))
        case ["replace", volume]:
            cluster.replace(volume, is_retained=True)
        case ["approve", name]:
            answer = cluster.approve(api.get(f"{ACTIONS}/{name}"))
            if answer.get("spec", {}).get("approval") != "Approved":
                raise Failure(f"the approval: {answer}")
        case ["ready"]:
            sys.exit(0 if all_ready(api, "db") else 1)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
