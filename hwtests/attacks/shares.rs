//! Who may use what of the daemon: connections, watches, scrapes, the history. Hostile clients hold all
//! they can get, and connect again when they lose it; the others must be served meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::mount::MsFlags;

use diskvitals_wire::Finding;
use diskvitals_wire::witness_request::Call;

use crate::support::daemon::Arguments;
use crate::support::tools::mount_with;
use crate::support::{Client, Daemon, Disk, SOON, Testbed, eventually};

const READERS: &str = "[csi]\nread_gids = [65533, 65534]\nread_uids = [65535]\n";

/// A client without a library: holds connections in any state, or makes one call.
const CLIENT: &str = r#"
import os, select, socket, struct, sys, time
def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body
def text(field, value):
    return bytes([field << 3 | 2, len(value)]) + value.encode()
def headers(path, more=0):
    pairs = [(b"x%d" % one, b"x" * 110) for one in range(more)] + [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"x"),
             (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    return b"".join(b"\0" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in pairs)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
def call(path, message=b""):
    return PREFACE + frame(1, 4, 1, headers(path)) + frame(0, 1, 1, b"\0" + struct.pack(">I", len(message)) + message)
STATES = {"silent": b"", "half": PREFACE[:10], "idle": PREFACE, "watch": call("/diskvitals.v1.Inventory/Watch"),
          "full": PREFACE + b"".join(frame(1, 4, one, headers("/diskvitals.v1.Inventory/Explain", 9)) +
                                     frame(0, 0, one, b"\0" + struct.pack(">I", 60000) + b"\0" * 1500) for one in range(1, 64, 2)),
          "unfinished": PREFACE + frame(1, 4, 1, headers("/diskvitals.v1.Inventory/GetNode"))}
def connect(path):
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(path); return s
def hold(path, state, count):
    held, told = [], False
    while True:
        while len(held) < count:
            try: s = connect(path); s.sendall(STATES[state]); held.append(s)
            except OSError: time.sleep(0.02)
        if not told: os.write(1, b"held\n"); told = True
        for s in select.select(held, [], [], 0.2)[0]:
            try: more = s.recv(65536)
            except OSError: more = b""
            if not more: held.remove(s); s.close()
            elif state == "idle" and b"\0\0\0\4\0" in more: s.send(frame(4, 1, 0))
        time.sleep(0.01)
def once(path, method, message):
    s = connect(path); s.send(call(method, message)); data = b""
    while True:
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            end = 9 + int.from_bytes(data[:3], "big")
            kind, flags, body = data[3], data[4], data[9:end]; data = data[end:]
            if kind == 0: print("answered", flush=True); return
            if kind == 1 and flags & 1: print("refused", flush=True); return
        more = s.recv(65536)
        if not more: print("closed", flush=True); return
        data += more
what, path = sys.argv[1:3]
if what == "hold":
    state, processes, count, group = sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
    for _ in range(processes - 1):
        if os.fork() == 0: break
    hold(path, state, count)
elif what == "call":
    if sys.argv[3]: open(sys.argv[3] + "/cgroup.procs", "w").write("0")
    once(path, sys.argv[4], b"")
elif what == "witness":
    for number in range(17): once(path, "/diskvitals.v1.Storage/Witness", bytes([8, int(sys.argv[3])]) + text(2, "evil%d.example.com" % number) + text(3, "h"))
"#;

/// Uid, gid and other groups.
#[derive(Clone, Copy)]
struct Identity(u32, u32, &'static str);

#[expect(clippy::disallowed_methods, reason = "hostile and honest clients of other users")]
fn client(who: Identity, words: &[&dyn AsRef<std::ffi::OsStr>]) -> Command {
    let Identity(uid, gid, groups) = who;
    let mut command = Command::new("/usr/bin/setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.arg(format!("--groups={groups}")),
    };
    // A child of the client ends with it.
    command.args(["--pdeathsig=KILL", "/usr/bin/python3", "-c", CLIENT]);
    command.args(words).current_dir("/").stdout(Stdio::piped());
    command
}

/// Holds connections until it is dropped.
struct Holder {
    child: Child,
    /// Open: a process that cannot write to it would end.
    _output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(who: Identity, socket: &Path, state: &str, processes: usize, each: usize) -> Holder {
        use std::os::unix::process::CommandExt;
        let number = processes;
        let (processes, each) = (processes.to_string(), each.to_string());
        let mut command = client(who, &[&"hold", &socket, &state, &processes, &each, &""]);
        let mut child = command.process_group(0).spawn().expect("setpriv starts");
        let output = child.stdout.take().expect("a pipe");
        let mut output = BufReader::new(output);
        for _ in 0..number {
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            assert_eq!(line, "held\n");
        }
        Holder { child, _output: output }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(-i32::try_from(self.child.id()).expect("a pid"));
        nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL).expect("it runs");
        self.child.wait().expect("its status");
    }
}

/// The answer to one call of another process.
fn call(who: Identity, socket: &Path, control_group: &Path, method: &str) -> String {
    let mut command = client(who, &[&"call", &socket, &control_group, &method]);
    let output = command.output().expect("setpriv starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn assert_answered(who: &str, answer: &str) {
    assert!(answer.starts_with("answered"), "{who}: {answer}");
}

const GET_NODE: &str = "/diskvitals.v1.Inventory/GetNode";
const WATCH: &str = "/diskvitals.v1.Inventory/Watch";

fn arguments(testbed: &Testbed, more: &str) -> Arguments {
    let arguments = Arguments::of(testbed);
    let text = std::fs::read_to_string(&arguments.config).expect("the configuration");
    std::fs::write(&arguments.config, format!("{text}{more}")).expect("it is written");
    for folder in [testbed.path(""), testbed.path("run")] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    }
    arguments
}

/// A control group beside the attacker's, as another pod has it.
struct ControlGroup(std::path::PathBuf);

impl ControlGroup {
    fn new() -> ControlGroup {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];
        let root = roots
            .iter()
            .find(|root| Path::new(root).join("cgroup.procs").exists())
            .expect("a hierarchy of control groups");
        let path = Path::new(root).join(format!("shares-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a control group");
        ControlGroup(path)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).expect("it is empty");
    }
}

/// An interposer has uid 0 and a group that may read. Its connections are in every state, of one process
/// and of many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interposer_takes_the_connections_of_nobody_else() {
    let testbed = Testbed::new();
    let arguments = arguments(&testbed, READERS);
    let daemon = Daemon::start_with(&arguments).await;
    let agent = arguments.agent_socket.as_path();
    let other_pod = ControlGroup::new();
    let attacker = Identity(0, 65533, "");
    for (state, processes, each) in [
        ("silent", 1, 40),
        ("half", 1, 40),
        ("idle", 40, 1),
        ("unfinished", 1, 40),
        ("watch", 1, 40),
        ("watch", 40, 1),
    ] {
        let _held = Holder::start(attacker, agent, state, processes, each);
        for round in 0..3 {
            let what = format!("{state}, {processes} processes, round {round}");
            let root = Client::new(agent).try_node().await;
            root.unwrap_or_else(|status| panic!("root: {what}: {status}"));
            for (name, who) in [
                ("the other group", Identity(0, 65534, "")),
                ("another reader", Identity(65535, 65535, "")),
            ] {
                for method in [GET_NODE, WATCH] {
                    let answer = call(who, agent, Path::new(""), method);
                    assert_answered(&format!("{name}: {what}"), &answer);
                }
            }
            let answer = call(attacker, agent, &other_pod.0, GET_NODE);
            assert_answered(&format!("another pod of the same group: {what}"), &answer);
        }
    }
    daemon.stop().await;
}

/// Three members of the group have as many connections and watches as all together may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_the_group_lock_each_other_out_of_nothing() {
    let testbed = Testbed::new();
    let arguments = arguments(&testbed, "");
    let daemon = Daemon::start_with(&arguments).await;
    let main = arguments.socket.as_path();
    // Without the group on this machine, the socket has root's.
    let group = {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(main).expect("the socket").gid()
    };
    let groups: &'static str = group.to_string().leak();
    let member = |uid| Identity(uid, uid, groups);
    let _held: Vec<Holder> =
        (4001..4004).map(|uid| Holder::start(member(uid), main, "watch", 4, 10)).collect();
    for round in 0..3 {
        for method in [GET_NODE, WATCH] {
            let answer = call(member(4004), main, Path::new(""), method);
            assert_answered(&format!("{method}, round {round}"), &answer);
        }
        daemon.client.node().await;
    }
    daemon.stop().await;
}

/// Each part of both sockets' connections is taken by other uids, with all streams of each in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_many_uids_hold_no_more_memory_together_than_one_may() {
    const BUDGET_KIB: u64 = 16 << 10;
    let testbed = Testbed::new();
    let arguments = arguments(&testbed, READERS);
    let daemon = Daemon::start_with(&arguments).await;
    let (main, agent) = (arguments.socket.as_path(), arguments.agent_socket.as_path());
    let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(main).expect("the socket"));
    let groups: &'static str = group.to_string().leak();
    let status = |name| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
        let text = text.expect("the daemon runs");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number")
    };
    daemon.client.node().await;
    let before = status("VmRSS");
    let users = (4001..4005).map(|uid| (Identity(uid, uid, groups), main, 24));
    let others = [
        (Identity(0, 0, ""), main, 32),
        (Identity(0, 0, ""), agent, 32),
        (Identity(65535, 65535, ""), agent, 32),
        (Identity(0, 65533, ""), agent, 16),
        (Identity(0, 65534, ""), agent, 16),
        (Identity(4009, 4009, ""), agent, 4),
    ];
    let held: Vec<Holder> = users
        .chain(others)
        .map(|(who, socket, count)| Holder::start(who, socket, "full", 1, count))
        .collect();
    let mut peak = 0;
    eventually("it has all of it", SOON, async || {
        let reached = status("VmHWM");
        tokio::time::sleep(Duration::from_secs(2)).await;
        peak = status("VmHWM");
        (peak == reached).then_some(())
    })
    .await;
    drop(held);
    eprintln!("all callers hold {} KiB", peak - before);
    assert!(peak <= before + BUDGET_KIB, "{} KiB", peak - before);
    daemon.stop().await;
}

/// `status` shows warnings to people.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_writes_no_warning() {
    let testbed = Testbed::new();
    let arguments = arguments(&testbed, READERS);
    let daemon = Daemon::start_with(&arguments).await;
    let agent = arguments.agent_socket.as_path();
    let witness = |who, call: Call, expected: &str| {
        let call = (call as i32).to_string();
        let output = client(who, &[&"witness", &agent, &call]).output();
        let output = output.expect("setpriv starts").stdout;
        let answers = String::from_utf8_lossy(&output);
        assert_eq!(answers.matches(expected).count(), 17, "{answers}");
    };
    let warnings = async || {
        let warnings = daemon.client.node().await.warnings;
        warnings.iter().filter(|it| it.contains("evil")).count()
    };
    let readers = [Identity(65535, 65535, ""), Identity(0, 65533, "")];
    for reader in readers {
        witness(reader, Call::Bypassed, "refused");
    }
    assert_eq!(warnings().await, 0);
    assert!(!daemon.log().contains("evil"), "{}", daemon.log());
    // The same from a caller that may do everything: readers do not take it back.
    witness(Identity(0, 0, ""), Call::Bypassed, "answered");
    eventually("they are shown", SOON, async || (warnings().await == 16).then_some(())).await;
    for reader in readers {
        witness(reader, Call::Staged, "answered");
    }
    assert_eq!(warnings().await, 16);
    witness(Identity(0, 0, ""), Call::Staged, "answered");
    eventually("they are over", SOON, async || (warnings().await == 0).then_some(())).await;
    daemon.stop().await;
}

fn scrape(address: std::net::SocketAddr, timeout: Duration) {
    let mut scrape = std::net::TcpStream::connect(address).expect("it connects");
    scrape.set_read_timeout(Some(timeout)).expect("a time-out");
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    scrape.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

/// Slow clients at the scraper's own address, far more than there are places, and clients that scrape.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_starve_no_scrape() {
    let testbed = Testbed::new();
    let address = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("its address")
    };
    let listen = format!("[metrics]\nlisten = \"{address}\"\n");
    let arguments = arguments(&testbed, &listen);
    let daemon = Daemon::start_with(&arguments).await;
    let mut slow = Vec::new();
    for number in 0..400 {
        let mut stream = std::net::TcpStream::connect(address).expect("it connects");
        let part: &[u8] = match number % 3 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: a",
            _ => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        // It may be cut off already.
        let _ = stream.write_all(part);
        slow.push(stream);
    }
    for _ in 0..5 {
        scrape(address, Duration::from_secs(2));
    }
    drop(slow);
    // Complete scrapes without end.
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flood: Vec<_> = (0..16)
        .map(|_| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let mut answered = 0_u32;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    scrape(address, Duration::from_secs(10));
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        // Prometheus' own time-out (scrape_timeout).
        scrape(address, Duration::from_secs(10));
        longest = longest.max(begun.elapsed());
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    let answered: u32 = flood.into_iter().map(|one| one.join().expect("each is answered")).sum();
    eprintln!("beside {answered} other scrapes, the longest of 20 took {longest:?}");
    daemon.stop().await;
}

/// Waits until nothing is known against the volume.
async fn over(daemon: &Daemon, id: &str) {
    eventually("it has cleared", SOON, async || {
        let findings = daemon.client.findings(false).await;
        let about = |it: &Finding| it.subject.as_ref().is_some_and(|it| it.id == id);
        (!findings.iter().any(about)).then_some(())
    })
    .await;
}

/// Images that a user has mounted become full and free again until the history is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_that_users_make_push_no_other_out_of_the_history() {
    const IMAGES: usize = 5;
    let testbed = Testbed::new();
    let arguments = arguments(&testbed, "[history]\nmax_findings = 8\n");
    let mount = |name: &str, flags: MsFlags| -> (Disk, std::path::PathBuf) {
        let disk = testbed.ext4(&format!("{name}.img"), 16, &["-m", "0"]);
        let at = testbed.path(format!("mnt/{name}"));
        mount_with(&disk.device, "ext4", &at, flags, "");
        (disk, at)
    };
    let (_own, own) = mount("own", MsFlags::empty());
    let images: Vec<_> = (0..IMAGES)
        .map(|number| {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(&format!("image{number}"), flags)
        })
        .collect();
    let daemon = Daemon::start_with(&arguments).await;
    let client = &daemon.client;
    let id = |at: &Path| format!("mnt:{}", at.display());
    let fill = |at: &Path| {
        let mut file = std::fs::File::create(at.join("fill")).expect("a file");
        while file.write_all(&[1; 1 << 16]).is_ok() {}
    };
    let free = |at: &Path| std::fs::remove_file(at.join("fill")).expect("the file");
    fill(&own);
    client.raised(&id(&own), "OutOfSpace", SOON).await;
    free(&own);
    over(&daemon, &id(&own)).await;
    for _ in 0..4 {
        images.iter().for_each(|(_, at)| fill(at));
        for (_, at) in &images {
            client.raised(&id(at), "OutOfSpace", SOON).await;
        }
        images.iter().for_each(|(_, at)| free(at));
        for (_, at) in &images {
            over(&daemon, &id(at)).await;
        }
    }
    let all = eventually("the history is full", SOON, async || {
        let findings = client.findings(true).await;
        let past: Vec<_> = findings.into_iter().filter(|it| it.cleared.is_some()).collect();
        (past.len() == 8).then_some(past)
    })
    .await;
    let subject = |it: &Finding| it.subject.clone().expect("one").id;
    let of_own: Vec<_> = all.iter().filter(|it| subject(it) == id(&own)).collect();
    assert_eq!(of_own.len(), 1, "{all:#?}");
    daemon.stop().await;
}
