//! Access to the cluster: kubectl, the kubelet's metrics, and waiting for conditions.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

pub const NODE: &str = "127.0.0.1";
/// The limit for what the kubelet polls every five seconds, on a machine with two busy processors.
pub const SOON: Duration = Duration::from_secs(60);
/// The limit for unpacking images, scheduling pods and creating volumes.
pub const TIME_LIMIT: Duration = Duration::from_secs(180);

/// A variable that the cluster's first process sets for all its children.
fn variable(name: &str) -> PathBuf {
    std::env::var_os(name)
        .unwrap_or_else(|| panic!("no {name}: this runs within hwtests/kubernetes/cluster, as `scripts/test kubernetes` does it"))
        .into()
}

/// Logs, keys, and the kubelet's directory.
pub fn run() -> PathBuf {
    variable("DISKVITALS_LAB_RUN")
}

pub fn kubelet_root() -> PathBuf {
    run().join("kubelet")
}

/// Where helm and the other drivers are.
pub fn tool(name: &str) -> PathBuf {
    variable("DISKVITALS_LAB_TOOLS").join(name)
}

#[expect(clippy::disallowed_methods, reason = "tests use the cluster's own tools")]
pub fn command(program: impl AsRef<Path>) -> Command {
    Command::new(program.as_ref())
}

/// Output of a program that gets `input`, whatever its exit status.
pub fn output(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("its input");
    // It may end before it has read everything: then its status gives the reason.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("its end")
}

pub fn kubectl_program() -> PathBuf {
    variable("DISKVITALS_LAB_KUBECTL")
}

/// Its output, or its error output.
pub fn try_kubectl(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut kubectl = command(kubectl_program());
    kubectl.args(arguments);
    let output = output(kubectl, input);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(output_text)
    } else {
        Err(format!("{output_text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

pub fn kubectl(arguments: &[&str]) -> String {
    try_kubectl(arguments, "")
        .unwrap_or_else(|error| panic!("kubectl {}: {error}", arguments.join(" ")))
}

/// Applies `objects` as a list.
pub fn apply(objects: &[Value]) {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
    if let Err(error) = try_kubectl(&["apply", "-f", "-"], &list.to_string()) {
        panic!("{error}\n{list:#}");
    }
}

/// One object, if it exists: `pod/a`, `csinode/127.0.0.1`.
pub fn get(what: &str) -> Option<Value> {
    get_in("default", what)
}

pub fn get_in(namespace: &str, what: &str) -> Option<Value> {
    let text = try_kubectl(&["-n", namespace, "get", what, "-o", "json"], "").ok()?;
    serde_json::from_str(&text).ok()
}

/// The kubelet's own metrics, as text; from the kubelet itself, because the API server does not
/// proxy to a loopback address.
pub fn kubelet_metrics() -> String {
    kubectl(&["--server", "https://127.0.0.1:20250", "get", "--raw", "/metrics"])
}

/// The sum over all series of a metric whose labels contain each of `labels`; None where there is
/// no such series.
pub fn metric(name: &str, labels: &[&str]) -> Option<f64> {
    let text = kubelet_metrics();
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix('{')?;
        let (of, value) = rest.rsplit_once("} ")?;
        labels
            .iter()
            .all(|label| of.contains(label))
            .then(|| value.split(' ').next()?.parse::<f64>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}

/// The daemon's own metrics, as a Prometheus on this node gets them.
pub fn scrape() -> std::io::Result<String> {
    let mut connection = TcpStream::connect_timeout(&([127, 0, 0, 1], 9961).into(), SOON)?;
    connection.set_read_timeout(Some(SOON))?;
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Polls until `condition` gives a value. Ends the test after `within`, naming `what`.
pub fn until<T>(what: &str, within: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begun.elapsed() < within, "within {within:?} not so: {what}");
        pause(Duration::from_millis(200));
    }
}

/// For an assertion that something does NOT happen, and between two polls.
#[expect(clippy::disallowed_methods, reason = "what waits long waits for a condition")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Restarts the kubelet with the given options, such as `--gates` (hwtests/kubernetes/cluster).
pub fn restart_kubelet(arguments: &[&str]) {
    lab(&[&["kubelet"], arguments].concat());
}

/// A command of hwtests/kubernetes/cluster; its output.
pub fn lab(arguments: &[&str]) -> String {
    try_lab(arguments).unwrap_or_else(|error| panic!("cluster {}: {error}", arguments.join(" ")))
}

pub fn try_lab(arguments: &[&str]) -> Result<String, String> {
    let mut cluster =
        command(Path::new(env!("CARGO_MANIFEST_DIR")).join("hwtests/kubernetes/cluster"));
    cluster.args(arguments);
    let output = output(cluster, "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// A program outside of the cluster; it ends with the test.
pub struct HostProgram(Child);

impl HostProgram {
    /// Its output is written to the cluster's logs, as NAME.log.
    pub fn start(name: &str, program: &mut Command) -> HostProgram {
        let log = File::options()
            .create(true)
            .append(true)
            .open(run().join("log").join(format!("{name}.log")))
            .expect("its log");
        let program =
            program.stdin(Stdio::null()).stdout(log.try_clone().expect("its log")).stderr(log);
        HostProgram(program.spawn().unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    pub fn kill(&self) {
        kill(Pid::from_raw(self.pid()), Signal::SIGKILL).expect("it runs");
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a process number")
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        // SIGTERM, as from a supervisor; it may have ended by itself.
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
