//! `diskvitals-notify` as a process: real servers, and where a daemon is needed, a real daemon on a
//! recorded host.

mod commands;
mod delivery;
mod fake_daemon;
mod flood;
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use server::{PASSWORD, Server, TIMEOUT, USER, certificate};

use crate::child::Process;
use crate::programs::built_program;

/// The folder of one `diskvitals-notify`: its configuration, secrets, queue and log.
pub struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    pub fn new(config: &str) -> Scene {
        let scene = Scene { dir: tempfile::tempdir().expect("a folder") };
        scene.write("password", PASSWORD);
        scene.configure(config);
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) {
        // Renamed into place, so that it is never half read.
        std::fs::write(self.path("new"), format!("{content}\n")).expect("written");
        std::fs::rename(self.path("new"), self.path(name)).expect("in place");
    }

    pub fn configure(&self, config: &str) {
        self.write("notify.toml", config);
    }

    #[allow(clippy::disallowed_methods, reason = "a test starts the programs it tests")]
    fn command(&self) -> Command {
        let mut command = Command::new(built_program("diskvitals-notify"));
        command
            .arg("--config")
            .arg(self.path("notify.toml"))
            .env_remove("CREDENTIALS_DIRECTORY")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn output(&self, words: &[&str]) -> Output {
        self.command().args(words).output().expect("runs")
    }

    /// Starts it beside a daemon.
    pub fn start(&self, socket: &Path) -> Process {
        self.start_with_queue(socket, &self.path("state"))
    }

    pub fn start_with_queue(&self, socket: &Path, queue: &Path) -> Process {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("the log");
        let child = self
            .command()
            .args(["--log-format", "text", "--socket"])
            .arg(socket)
            .arg("--state-dir")
            .arg(queue)
            .stderr(log)
            .spawn();
        Process(child.expect("starts"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn until<T>(&self, what: &str, value: impl FnMut() -> Option<T>) -> T {
        self.until_within(TIMEOUT, what, value)
    }

    /// Waits until there is a value.
    #[allow(clippy::disallowed_methods)] // Nothing announces it; it is asked for a little later.
    pub fn until_within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut value: impl FnMut() -> Option<T>,
    ) -> T {
        let end = Instant::now() + limit;
        loop {
            if let Some(value) = value() {
                return value;
            }
            assert!(Instant::now() < end, "not so: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn smtp_target(server: &Server, tls: &str) -> String {
    format!(
        "[[target]]\nname = \"mail\"\ntype = \"smtp\"\nserver = \"localhost:{}\"\ntls = \"{tls}\"\nca_file = \"{}\"\nfrom = \"diskvitals@node7.example\"\nto = [\"ops@example.com\"]\nusername = \"{USER}\"\npassword_file = \"password\"\ntimeout = \"5s\"\n",
        server.address.port(),
        certificate("ca.pem").display()
    )
}

pub fn webhook_target(server: &Server, more: &str) -> String {
    format!(
        "[[target]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"https://localhost:{}/hook\"\nca_file = \"{}\"\ntimeout = \"5s\"\n{more}\n",
        server.address.port(),
        certificate("ca.pem").display()
    )
}

/// Standard output and error, and the exit status.
pub fn said(output: &Output) -> (String, Option<i32>) {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (text, output.status.code())
}

/// The body of a request.
pub fn json(request: &str) -> serde_json::Value {
    let (_, body) = request.split_once("\n\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}
