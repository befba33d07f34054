//! A daemon as a process, on a recorded host, with its metrics over TCP. Shared by tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::programs::built_program;

pub const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Daemon {
    pub child: Child,
    pub dir: tempfile::TempDir,
    pub log: Option<BufReader<std::process::ChildStderr>>,
}

impl Daemon {
    pub fn start(root: &Path, config: &str, listen: Option<&str>) -> Daemon {
        Daemon::start_with(root, config, listen, &[])
    }

    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    pub fn start_with(
        root: &Path,
        config: &str,
        listen: Option<&str>,
        arguments: &[&str],
    ) -> Daemon {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(
            dir.path().join("config.toml"),
            config.replace("DIR", &dir.path().display().to_string()),
        )
        .expect("configuration");
        let mut command = Command::new(built_program("diskvitalsd"));
        command.arg("--host-root").arg(root).arg("--config").arg(dir.path().join("config.toml"));
        command
            .arg("--socket")
            .arg(dir.path().join("d.sock"))
            .arg("--agent-socket")
            .arg(dir.path().join("a.sock"));
        command
            .arg("--state-dir")
            .arg(dir.path().join("state"))
            .args(["--log-format", "json"])
            .args(arguments)
            .stderr(Stdio::piped());
        if let Some(listen) = listen {
            command.arg("--metrics-listen").arg(listen);
        }
        let mut child = command.spawn().expect("starts");
        let log = child.stderr.take().map(BufReader::new);
        Daemon { child, dir, log }
    }

    /// The address of its metrics from its log, which contains it before anything is served.
    pub fn address(&mut self) -> SocketAddr {
        for line in self.log.as_mut().expect("a log").lines().map_while(Result::ok) {
            let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if said["message"] == "metrics are served" {
                return said["address"].as_str().expect("an address").parse().expect("an address");
            }
        }
        panic!("the daemon ended without serving metrics");
    }

    pub fn stop(mut self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        assert!(self.child.wait().expect("ends").success());
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("running");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // At the end of a passing test the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn http_get(mut stream: impl Read + Write, accept: &str) -> String {
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n")
        .expect("is asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("is answered");
    answer
}

pub fn scrape(address: SocketAddr) -> String {
    let answer =
        http_get(TcpStream::connect(address).expect("connects"), "application/openmetrics-text");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    answer
}

/// Scrapes until the condition is true.
#[allow(clippy::disallowed_methods)] // Nothing announces it; the next scrape is made a little later.
pub fn scrape_until(address: SocketAddr, what: &str, is_so: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + TIMEOUT;
    loop {
        let text = scrape(address);
        if is_so(&text) {
            return text;
        }
        assert!(Instant::now() < end, "not so: {what}\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
