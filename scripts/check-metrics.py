"""A daemon on a recorded host, a Prometheus that scrapes it, and a comparison of both. Run by scripts/check-metrics; argument: the directory of the programs."""

import json, os, re, shutil, signal, socket, subprocess, sys, tempfile, time, urllib.parse, urllib.request

BIN = sys.argv[1]
PATIENCE = 60
wrong = []


def smart(device, kind, protocol, rest):
    return {"json_format_version": [1, 0], "smartctl": {"version": [7, 4], "argv": ["smartctl", "-j"], "exit_status": 0},
            "device": {"name": device, "info_name": device, "type": kind, "protocol": protocol},
            "smart_status": {"passed": True}, "smart_support": {"available": True, "enabled": True},
            "power_on_time": {"hours": 9000}, "power_cycle_count": 12, "temperature": {"current": 34}, **rest}


def attribute(number, name, raw):
    return {"id": number, "name": name, "value": 100, "worst": 100, "thresh": 10, "when_failed": "",
            "flags": {"prefailure": True}, "raw": {"value": raw, "string": str(raw)}}


def ata(device, serial, pending):
    table = [attribute(5, "Reallocated_Sector_Ct", 0), attribute(187, "Reported_Uncorrect", 0), attribute(197, "Current_Pending_Sector", pending),
             attribute(198, "Offline_Uncorrectable", 0), attribute(199, "UDMA_CRC_Error_Count", 0)]
    return smart(device, "sat", "ATA", {"model_name": "MTFDDAK960TDS-1AW1ZABYY", "serial_number": serial, "rotation_rate": 7200, "in_smartctl_database": True,
                                        "ata_smart_error_log": {"extended": {"count": 0}}, "ata_smart_attributes": {"table": table}})


def nvme(device, serial):
    log = {"critical_warning": 0, "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 3, "media_errors": 0,
           "num_err_log_entries": 0, "unsafe_shutdowns": 1, "data_units_written": 7, "data_units_read": 8}
    return smart(device, "nvme", "NVMe", {"model_name": "INTEL SSDPE2KX010T8", "serial_number": serial, "nvme_smart_health_information_log": log})


def host(at):
    """tests/hosts/kubernetes-node, with drives that report SMART data and a kernel log with incidents."""
    root, tools = os.path.join(at, "host"), os.path.join(at, "smart")
    shutil.copytree("tests/hosts/kubernetes-node", root, symlinks=True)
    os.makedirs(os.path.join(root, "dev"))
    error = "I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2"
    with open(os.path.join(root, "dev/kmsg"), "w") as log:
        log.write(f"3,100,60000000,-;critical medium error, dev sda, sector 4096 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2\n3,101,61000000,-;{error}\n")
    os.makedirs(os.path.join(tools, "dev"))
    shutil.copy("tests/support/smartctl", os.path.join(tools, "smartctl"))
    os.chmod(os.path.join(tools, "smartctl"), 0o755)
    for answer in [nvme("/dev/nvme0", "BTLJ9050021A1P0FGN"), ata("/dev/sda", "2019289A1B2C", 8), ata("/dev/sdb", "2019289A1B2D", 0)]:
        with open(os.path.join(tools, answer["device"]["name"][1:] + ".json"), "w") as file:
            json.dump(answer, file)
    with open(os.path.join(at, "diskvitals.toml"), "w") as config:
        config.write(f'[smart]\ncommand = "{tools}/smartctl"\n[probes]\ninterval = "2s"\n')
    return root


def get(url, accept=None):
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def until(what, is_so):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            value = is_so()
        except OSError as error:
            value, last = None, error
        if value:
            return value
        if time.monotonic() > end:
            sys.exit(f"error: not within {PATIENCE} s: {what}")
        time.sleep(0.1)


def served(log):
    for line in open(log):
        # The last line may be incomplete.
        event = json.loads(line) if line.endswith("\n") else {}
        if event.get("message") == "metrics are served":
            return event["address"]


def names(query):
    return set(re.findall(r"\b(?:diskvitals|smartctl)_[a-z0-9_]+", query))


def queries():
    """Every query of the dashboard, its variables' too: (where, query, whether an empty answer is one)."""
    board = json.load(open("dashboards/diskvitals.json"))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            query, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            yield f"variable {variable['name']}", f"count by ({label}) ({query})"
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]


def concrete(query):
    query = query.replace("$__rate_interval", "1m").replace("$__interval", "1m").replace("$__range", "1h")
    query = re.sub(r"\$(instance|drive|volume|namespace|pod)\b", ".*", query)
    if "$" in query:
        wrong.append(f"a variable that is never set: {query}")
    return query


def main(at, running):
    root = host(at)
    log = os.path.join(at, "diskvitalsd.log")
    running.append(subprocess.Popen(
        [f"{BIN}/diskvitalsd", "--host-root", root, "--config", f"{at}/diskvitals.toml", "--socket", f"{at}/d.sock", "--agent-socket", f"{at}/a.sock",
         "--state-dir", f"{at}/state", "--log-format", "json", "--metrics-listen", "127.0.0.1:0"], stderr=open(log, "w")))
    address = until("the daemon serves metrics", lambda: served(log))
    scrape = lambda accept=None: get(f"http://{address}/metrics", accept)
    until("all drives have reported SMART data", lambda: scrape().count('outcome="ok"} 1') == 3)

    lint = subprocess.run(["promtool", "check", "metrics"], input=scrape(), text=True, capture_output=True)
    if lint.returncode != 0 or lint.stderr.strip():
        wrong.append(f"promtool check metrics: {lint.returncode} {lint.stdout}{lint.stderr}")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(os.path.join(at, "prometheus.yaml"), "w") as config:
        json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                   "rule_files": [os.path.abspath("alerts/diskvitals.rules.yaml"), os.path.abspath("alerts/smartctl-exporter.rules.yaml")],
                   "scrape_configs": [{"job_name": "diskvitals", "static_configs": [{"targets": [address]}]}]}, config)
    running.append(subprocess.Popen(
        ["prometheus", f"--config.file={at}/prometheus.yaml", f"--storage.tsdb.path={at}/tsdb", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=open(os.path.join(at, "prometheus.log"), "w")))
    api = lambda path, **parameters: json.loads(get(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]
    ask = lambda query: api("query", query=query)["result"]
    # Rates need several scrapes, and rules several evaluations.
    until("Prometheus has scraped it", lambda: (ask("count_over_time(diskvitals_build_info[1m])") or [{"value": [0, "0"]}])[0]["value"][1] >= "4")
    until("the alert of the drive with pending sectors", lambda: ask('ALERTS{alertname=~"DiskvitalsDrive(Failing|Suspect)"}'))
    until("the names of smartctl_exporter", lambda: ask("smartctl_device_attribute"))

    [target] = api("targets")["activeTargets"]
    if target["health"] != "up" or target["lastError"]:
        wrong.append(f"the scrape: {target['lastError']}")
    known = {name for name in api("label/__name__/values") if name.startswith(("diskvitals_", "smartctl_"))}
    scraped = {line.split("{")[0].split(" ")[0] for line in scrape("application/openmetrics-text").splitlines() if not line.startswith("#")}
    if scraped - known:
        wrong.append(f"exported and not accepted by Prometheus: {sorted(scraped - known)}")
    for group in api("rules")["groups"]:
        wrong.extend(f"rule {rule['name']}: {rule.get('lastError')}" for rule in group["rules"] if rule["health"] != "ok")
    documented = open("docs/metrics.md").read()
    # A misspelled name is not in the page; every metric of this host must be.
    rules = "".join(open(f"alerts/{file}").read() for file in ("diskvitals.rules.yaml", "smartctl-exporter.rules.yaml"))
    rules = re.sub("(?m)^#.*$", "", rules)
    used = {re.sub("(_seconds)_(bucket|sum|count)$", r"\1", name) for name in known | names(rules) | set().union(*(names(query) for _, query in queries()))}
    listed = set(re.findall(r"`([a-z0-9_]+)`", documented))
    wrong.extend(f"docs/metrics.md lacks {name}" for name in sorted(used - listed))

    evaluated, empty = 0, 0
    for where, query in queries():
        query, evaluated = concrete(query), evaluated + 1
        try:
            result = ask(query)
        except urllib.error.HTTPError as error:
            wrong.append(f"{where}: {query}: {error.read().decode()}")
            continue
        if result:
            continue
        empty += 1
        # A comparison may have no result; missing series (no check has run, no SCSI drive) give none.
        if names(query) <= known and not re.search(r"==|[<>]", query):
            wrong.append(f"{where} shows nothing: {query}")
    # There is no SCSI drive on this host.
    absent = {"smartctl_scsi_grown_defect_list"}
    records = set(re.findall(r"- record: (\S+)", open("alerts/smartctl-exporter.rules.yaml").read()))
    wrong.extend(f"recorded nothing: {name}" for name in sorted(records - known - absent))
    print(f"{len(scraped)} metrics, {evaluated} queries of the dashboard ({empty} of series that this host lacks), {len(records)} names of smartctl_exporter")


running = []
with tempfile.TemporaryDirectory(prefix="dv-metrics.") as at:
    try:
        main(at, running)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait()
if wrong:
    sys.exit("\n".join(["error:"] + wrong))
