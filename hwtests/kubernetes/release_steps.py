#!/usr/bin/env python3
"""Releases on the cluster of release-cluster.sh, with controllers that are killed or stopped between any two steps: run by check-release-steps.

    release_steps.py [RUNS]"""
import collections, json, os, signal, subprocess, sys, threading, time

from release_cluster import ACTIONS, CORE, GROUP, NODES, SCRATCH, SERVER, SHOP, Api, Cluster, Failure, Proxy, all_ready, until

FLEET = "system:serviceaccount:storage:dv-diskvitals-fleet"
USUAL = os.environ["LAB_TIMING"]
PLUGIN = os.environ["LAB_BIN"] + "/kubectl-diskvitals"


class Fleet:
    """One controller."""
    count = 0

    def __init__(self, server=None, timing=""):
        Fleet.count += 1
        with open(f"{SCRATCH}/kubeconfig") as file:
            config = file.read()
        path = f"{SCRATCH}/kubeconfig-{Fleet.count}"
        with open(path, "w") as file:
            file.write(config.replace(f"https://{SERVER}", server or f"https://{SERVER}"))
        environment = os.environ | {"KUBECONFIG": path, "DISKVITALS_FLEET_TIMING": f"{USUAL},{timing}".strip(",")}
        self.log = open(f"{SCRATCH}/fleet-{Fleet.count}.log", "w")
        self.process = subprocess.Popen([os.environ["LAB_BIN"] + "/diskvitals-fleet", "--duties", "release", "--carry-out-in", "shop", "--lease-name", "dv-diskvitals-fleet", "--log-format", "text"],
            env=environment, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        if self.process.poll() is None:
            self.go_on()
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise Failure("a controller has not ended within 20 s")
        self.log.close()


class Audit:
    """What was asked of the API server since `mark`."""

    def __init__(self):
        self.path = f"{SCRATCH}/audit.json"
        self.mark()

    def mark(self):
        self.offset = os.path.getsize(self.path)

    def since(self):
        with open(self.path) as file:
            file.seek(self.offset)
            for line in file:
                if line.endswith("\n"):
                    entry = json.loads(line)
                    # An eviction is asked for without being done as well.
                    if entry["stage"] == "ResponseComplete" and "dryRun" not in entry["requestURI"]:
                        yield entry

    def count(self, verb, resource, subresource=None, code=None, user=None):
        """Names, one for each request."""
        return [entry["objectRef"].get("name") for entry in self.since()
            if entry["verb"] == verb and entry["objectRef"]["resource"] == resource and entry["objectRef"].get("subresource") == subresource
            and (code is None or entry["responseStatus"]["code"] == code) and (user is None or entry["user"]["username"] == user)]


def condition(action, name):
    return next((it for it in action.get("status", {}).get("conditions", []) if it["type"] == name), {"status": "", "reason": "", "message": ""})


class Lab:
    def __init__(self):
        self.api = Api()
        self.cluster = Cluster(self.api)
        self.audit = Audit()
        self.proxy = Proxy()
        self.proxy.start()
        self.fleets = []
        threading.Thread(target=self.cluster.play_for_ever, daemon=True).start()

    def start(self, proxied=False, timing=""):
        fleet = Fleet(self.proxy.address if proxied else None, timing)
        self.fleets.append(fleet)
        return fleet

    def end(self):
        self.proxy.go_on.set()
        for fleet in self.fleets:
            fleet.end()
        self.fleets = []

    def uids(self, kind):
        return {it["metadata"]["name"]: it["metadata"]["uid"] for it in self.api.items(f"{SHOP}/{kind}")}

    def actions(self):
        return {it["metadata"]["uid"]: it for it in self.api.items(ACTIONS)}

    def action(self, name):
        return {"status": {}} | self.api.get(f"{ACTIONS}/{name}")

    def has(self, name, step):
        return condition(self.action(name), step)["status"] == "True"

    def proposed(self, known):
        return next((it for uid, it in self.actions().items() if uid not in known), None)

    def until_proposed(self, known):
        return until("a release is proposed", 40, lambda: self.proposed(known))["metadata"]["name"]

    def approve(self, name):
        """As often as it is taken back before it begins."""
        def approved():
            action = self.action(name)
            return action["spec"]["approval"] == "Approved" or self.cluster.approve(action).get("spec", {}).get("approval") == "Approved"
        until("the approval", 20, approved)

    def volume(self, name):
        volume = self.api.get(f"{CORE}/persistentvolumes/{name}")
        notes = {key: value for key, value in volume["metadata"].get("annotations", {}).items() if key.startswith("diskvitals.io/")}
        return volume["spec"]["persistentVolumeReclaimPolicy"], notes, volume["status"]["phase"]

    def leader(self):
        lease = self.api.get("/apis/coordination.k8s.io/v1/namespaces/storage/leases/dv-diskvitals-fleet") or {}
        return lease.get("spec", {}).get("holderIdentity") or None

    # One release.

    def release(self, pod, follow):
        """The drive below the pod dies; `follow` is called until the action is Replaced. Returns the action's name, after everything was counted."""
        self.audit.mark()
        pods, claims, known = self.uids("pods"), self.uids("persistentvolumeclaims"), self.actions()
        volume = self.cluster.fail(pod)

        def replaced():
            follow()
            action = self.proposed(known)
            if action is None:
                return None
            if action["spec"]["approval"] == "Pending" and condition(action, "Confirmed")["reason"] == "NotApproved":
                self.cluster.approve(action)
            return condition(action, "Replaced")["status"] == "True" and action
        action = until(f"{pod} is replaced", 90, replaced)
        follow(True)
        self.check(pod, volume, action, pods, claims, known)
        self.cluster.replace(volume, is_retained=True)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))
        return action

    def check(self, pod, volume, action, pods, claims, known):
        """One release each, never two."""
        name, claim = action["metadata"]["name"], f"data-{pod}"
        deleted = self.audit.count("delete", "persistentvolumeclaims", code=200)
        evicted = self.audit.count("create", "pods", "eviction", code=201)
        new = [it for uid, it in self.actions().items() if uid not in known]
        expect("claims deleted", deleted, [claim])
        expect("claims deleted by the controller", self.audit.count("delete", "persistentvolumeclaims", code=200, user=FLEET), [claim])
        expect("pods evicted", evicted, [pod])
        for resource in ("pods", "persistentvolumes"):
            expect(f"{resource} deleted by the controller", self.audit.count("delete", resource, user=FLEET), [])
        expect("actions", [it["metadata"]["name"] for it in new], [name])
        expect("actions created", len(self.audit.count("create", "storageactions", code=201)), 1)
        # A new pod that is Ready before the eviction was noted ends the action.
        steps = [it["type"] for it in self.action(name)["status"]["conditions"] if it["status"] == "True" and it["type"] != "PodEvicted"]
        expect("the action", steps, ["Confirmed", "Prepared", "ClaimDeleted", "Replaced"])
        expect("the old volume", self.volume(volume), ("Retain", {"diskvitals.io/action": f"shop/{name}", "diskvitals.io/previous-reclaim-policy": "Delete"}, "Released"))
        for kind, before, own in (("pods", pods, pod), ("persistentvolumeclaims", claims, claim)):
            after = self.uids(kind)
            expect(f"{kind} that stayed", {it: uid for it, uid in after.items() if it != own}, {it: uid for it, uid in before.items() if it != own})
            if after[own] == before[own]:
                raise Failure(f"{own} is the old one")
        if self.cluster.volume_of(pod) == volume:
            raise Failure("the new claim has the old volume")

    def nothing_deleted(self):
        expect("claims deleted", self.audit.count("delete", "persistentvolumeclaims", code=200), [])
        expect("pods evicted", self.audit.count("create", "pods", "eviction", code=201), [])

    def run(self, pod, how, match, has_standby, resumes_early):
        """The first controller is killed or stopped at one write; another one takes over. False: it never came to that."""
        first = self.start(proxied=True)
        self.proxy.arm(first, how, match)
        leader = until("it leads", 20, self.leader)
        if has_standby:
            self.start()
        state = {"second": has_standby, "went_on": False}

        def follow(is_over=False):
            if not self.proxy.fired.is_set():
                return
            if not state["second"]:
                state["second"] = True
                self.start()
            takes_over = self.leader() not in (None, leader)
            if how == "stopped" and not state["went_on"] and (is_over or resumes_early and takes_over):
                state["went_on"] = True
                self.proxy.go_on.set()
                first.go_on()
            if is_over:
                # What it had begun arrives now.
                time.sleep(2 if how == "stopped" else 0.5)
        self.release(pod, follow)
        self.end()
        return self.proxy.hit is not None

    # Contradictions before the point of no return.

    def up_to(self, pod, what, timing=""):
        """A release whose controller is killed before this write."""
        known = self.actions()
        first = self.start(proxied=True, timing=timing)
        self.audit.mark()
        self.proxy.arm(first, "before", lambda writes: kind(writes[-1]) == what)
        volume = self.cluster.fail(pod)
        name = self.until_proposed(known)
        self.approve(name)
        until("the controller is killed", 40, self.proxy.fired.is_set)
        return name, volume

    def contradiction(self, pod, gate, change, undo):
        name, volume = self.up_to(pod, "DELETE persistentvolumeclaims")
        expect("the volume before", self.volume(volume)[0], "Retain")
        if not self.has(name, "Prepared"):
            raise Failure(f"the action is not Prepared: {self.action(name)['status']}")
        change(volume)
        self.start()
        until(f"the action ends: {gate}", 40, lambda: condition(self.action(name), "Aborted")["reason"] == gate)
        expect("the volume after", self.volume(volume), ("Delete", {}, "Bound"))
        self.nothing_deleted()
        self.end()
        undo(volume)
        self.cluster.replace(volume, is_retained=False)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))
        print(f"put back, nothing deleted: {gate}", flush=True)

    def suspension(self, pod):
        """A person suspends the policy: it waits, and is put back when it ends."""
        name, volume = self.up_to(pod, "DELETE persistentvolumeclaims")
        policy = f"{GROUP}/storagepolicies/default"
        self.api.merge(policy, {"spec": {"suspended": True}})
        self.start()
        until("it waits", 30, lambda: self.action(name)["status"].get("blockedBy") == "PolicySuspended")
        time.sleep(4)
        self.nothing_deleted()
        self.cluster.heal(volume)
        until("it ends", 30, lambda: self.has(name, "Aborted"))
        expect("the volume after", self.volume(volume), ("Delete", {}, "Bound"))
        self.nothing_deleted()
        self.end()
        self.api.merge(policy, {"spec": {"suspended": False}})
        self.cluster.replace(volume, is_retained=False)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))
        print("suspended: it waits, nothing deleted, and is put back when the failure is over", flush=True)

    # After it.

    def outage(self, pod):
        """No controller runs for longer than an eviction may be refused: it is tried first."""
        name, volume = self.up_to(pod, "POST eviction")
        time.sleep(16)
        self.start(timing="eviction=15")
        until("it is replaced", 60, lambda: self.has(name, "Replaced"))
        if self.has(name, "Stuck") or condition(self.action(name), "Stuck")["status"]:
            raise Failure(f"it was stuck: {self.action(name)['status']}")
        expect("pods evicted", self.audit.count("create", "pods", "eviction", code=201), [pod])
        self.end()
        self.cluster.replace(volume, is_retained=True)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))
        print("after an outage the eviction is tried before the action is stuck", flush=True)

    def refused_eviction(self, pod):
        """A PodDisruptionBudget that forbids the eviction after the claim was deleted."""
        name, volume = self.up_to(pod, "POST eviction")
        pdb = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
        self.api.create(pdb, {"metadata": {"name": "db"}, "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app.kubernetes.io/instance": "db"}}}})
        until("the budget is observed", 30, lambda: self.api.get(f"{pdb}/db").get("status", {}).get("observedGeneration"))
        self.start(timing="eviction=12")
        until("it is stuck", 60, lambda: self.has(name, "Stuck"))
        refused = self.audit.count("create", "pods", "eviction", code=429)
        expect("pods evicted", self.audit.count("create", "pods", "eviction", code=201), [])
        if len(refused) < 2:
            raise Failure(f"the eviction was tried {len(refused)} times only")
        print(f"stuck after {len(refused)} refused evictions: {condition(self.action(name), 'Stuck')['message']}", flush=True)
        # Another database waits for the budget.
        self.cluster.add_set("web")
        for node in NODES:
            self.cluster.add_volume(node)
        self.cluster.report()
        until("another database", 40, lambda: all_ready(self.api, "web"))
        known = self.actions()
        other_volume = self.cluster.fail("web-0")
        other = self.until_proposed(known)
        self.approve(other)
        until("the budget is used", 40, lambda: self.action(other)["status"].get("blockedBy") == "BudgetUsed")
        time.sleep(3)
        expect("claims deleted", self.audit.count("delete", "persistentvolumeclaims", code=200), [f"data-{pod}"])
        print("the stuck action keeps the budget", flush=True)
        # A person resolves it, and the other one goes on.
        self.api.delete(f"{pdb}/db")
        self.api.delete(f"{SHOP}/pods/{pod}")
        until("it is replaced", 60, lambda: self.has(name, "Replaced"))
        until("the other one too", 60, lambda: self.approved_and(other, "Replaced"))
        expect("claims deleted", sorted(self.audit.count("delete", "persistentvolumeclaims", code=200)), sorted([f"data-{pod}", "data-web-0"]))
        expect("pods evicted", self.audit.count("create", "pods", "eviction", code=201), ["web-0"])
        self.end()
        for it in (volume, other_volume):
            self.cluster.replace(it, is_retained=True)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))
        print("a person resolves it: both are replaced", flush=True)

    def switched_off(self, pod):
        """The RoleBinding is deleted after the claim was: the pod is not evicted."""
        name, volume = self.up_to(pod, "POST eviction")
        bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings"
        binding = self.api.get(f"{bindings}/dv-diskvitals-fleet-carry-out")
        self.api.delete(f"{bindings}/dv-diskvitals-fleet-carry-out")
        self.start(timing="eviction=12")
        until("it is stuck", 60, lambda: self.has(name, "Stuck"))
        expect("pods evicted", self.audit.count("create", "pods", "eviction", code=201), [])
        self.api.create(bindings, {key: binding[key] for key in ("roleRef", "subjects")} | {"metadata": {"name": "dv-diskvitals-fleet-carry-out"}})
        self.api.delete(f"{SHOP}/pods/{pod}")
        until("it is replaced", 60, lambda: self.has(name, "Replaced"))
        self.end()
        self.cluster.replace(volume, is_retained=True)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))
        print("without the RoleBinding nothing is evicted", flush=True)

    def approved_and(self, name, step):
        if self.action(name)["spec"]["approval"] == "Pending":
            self.approve(name)
        return self.has(name, step)

    def hanging(self, pod):
        """The pod's processes are in state D: it never ends."""
        self.audit.mark()
        known, uid = self.actions(), self.uids("pods")[pod]
        self.cluster.set("hung", [pod])
        self.start(timing="replacement=6")
        volume = self.cluster.fail(pod)
        name = self.until_proposed(known)
        self.approve(name)
        until("the pod is evicted", 60, lambda: self.has(name, "PodEvicted"))
        until("it is stuck", 60, lambda: self.has(name, "Stuck"))
        advice = condition(self.action(name), "Stuck")["message"]
        for text in ("state D", "node.kubernetes.io/out-of-service", "Power node"):
            if text not in advice:
                raise Failure(f"the advice does not say `{text}`: {advice}")
        time.sleep(4)
        expect("the pod", self.uids("pods")[pod], uid)
        expect("pods deleted", self.audit.count("delete", "pods"), [])
        expect("pods evicted", self.audit.count("create", "pods", "eviction", code=201), [pod])
        print(f"stuck, and nothing forced: {advice}", flush=True)
        self.cluster.set("hung", [])
        until("the node was powered off: replaced", 60, lambda: self.has(name, "Replaced"))
        self.end()
        self.cluster.replace(volume, is_retained=True)
        until("the database has all its members", 30, lambda: all_ready(self.api, "db"))


def expect(what, found, wanted):
    if found != wanted:
        raise Failure(f"{what}: {found} instead of {wanted}")


def by_plugin(lab):
    """From the proposal to Replaced, approved with the plugin."""
    lab.audit.mark()
    pods, claims, known = lab.uids("pods"), lab.uids("persistentvolumeclaims"), lab.actions()
    first = lab.start(proxied=True)
    lab.proxy.arm(first, "never", lambda writes: False)
    begun = time.monotonic()
    volume = lab.cluster.fail("db-0")
    name = lab.until_proposed(known)
    until("it waits for a person", 30, lambda: lab.action(name)["status"].get("blockedBy") == "NotApproved")
    lab.nothing_deleted()
    answer = subprocess.run([PLUGIN, "approve", name, "-n", "shop", "--yes"], env=os.environ | {"KUBECONFIG": f"{SCRATCH}/admin"}, capture_output=True, text=True)
    if answer.returncode != 0:
        raise Failure(f"kubectl diskvitals approve: {answer.stdout}{answer.stderr}")
    until("it is replaced", 90, lambda: lab.has(name, "Replaced"))
    action = lab.action(name)
    lab.check("db-0", volume, action, pods, claims, known)
    print(f"from the failure to Replaced in {time.monotonic() - begun:.0f} s:", flush=True)
    for step in action["status"]["steps"]:
        print(f"  {step['time']}  {step['text']}", flush=True)
    writes = list(lab.proxy.writes)
    lab.end()
    lab.cluster.replace(volume, is_retained=True)
    until("the database has all its members", 30, lambda: all_ready(lab.api, "db"))
    return writes


def plan(writes):
    """Each write of the controller: killed before it, killed after it, and stopped before it; the first two of a kind."""
    kinds = [kind(write) for write in writes]
    targets = [(it, kinds[:at + 1].count(it)) for at, it in enumerate(kinds) if kinds[:at + 1].count(it) <= 2]
    return [(how, *target) for target in targets for how in ("before", "after", "stopped")]


def is_it(writes, what, which):
    kinds = [kind(write) for write in writes]
    return kinds[-1] == what and kinds.count(what) == which


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    lab = Lab()
    until("a database of three", 60, lambda: all_ready(lab.api, "db"))
    try:
        writes = by_plugin(lab)
        print(f"{len(writes)} writes:", *writes, sep="\n  ", flush=True)
        hits, number, turns = collections.Counter(), 0, plan(writes)
        while hits.total() < runs:
            how, what, which = turns[number % len(turns)]
            begun = time.monotonic()
            is_hit = lab.run(f"db-{number % 3}", how, lambda writes: is_it(writes, what, which), number % 2 == 1, number % 4 < 2)
            number += 1
            print(f"{number:3}  {time.monotonic() - begun:4.1f} s  {how:8} {what} ({which}){'' if is_hit else ': not reached'}", flush=True)
            if is_hit:
                hits[how, what] += 1
            elif number > runs * 2:
                raise Failure(f"only {hits.total()} controllers in {number} releases were killed")
        print(f"{hits.total()} releases with a controller that was killed or stopped, one release each:", flush=True)
        for (how, what), times in sorted(hits.items()):
            print(f"  {times:3} {how:8} {what}")
        lab.contradiction("db-0", "FindingGone", lab.cluster.heal, lambda volume: None)
        lab.contradiction("db-1", "ReadyPod", lambda volume: lab.cluster.set("ready", ["db-1"]), lambda volume: lab.cluster.set("ready", []))
        lab.contradiction("db-2", "DriveElsewhere", lambda volume: lab.cluster.set("elsewhere", {other_node(lab, volume): [lab.cluster.state["drives"][volume]["drive"]]}), lambda volume: lab.cluster.set("elsewhere", {}))
        lab.suspension("db-0")
        lab.hanging("db-1")
        lab.outage("db-0")
        lab.switched_off("db-1")
        lab.refused_eviction("db-2")
    except Failure as failure:
        print(f"wrong: {failure}", flush=True)
        for it in lab.api.items(ACTIONS):
            if not any(condition(it, name)["status"] == "True" for name in ("Replaced", "Aborted")):
                print(json.dumps(it["status"], indent=1), flush=True)
        sys.exit(1)
    finally:
        for fleet in lab.fleets:
            if fleet.process.poll() is None:
                fleet.kill()


def kind(write):
    method, path, step = (write + " ").split(" ", 2)
    parts = path.split("/")
    what = "eviction" if parts[-1] == "eviction" else next(part for part in parts if part in ("storageactions", "persistentvolumes", "persistentvolumeclaims", "nodestorages"))
    return f"{method} {what} {step}".strip()


def other_node(lab, volume):
    own = lab.cluster.state["drives"][volume]["node"]
    return next(node for node in NODES if node != own)


if __name__ == "__main__":
    main()
