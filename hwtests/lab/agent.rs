//! qemu-guest-agent: commands in the guest, with their exit code and output.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::lab::json_socket::JsonSocket;
use crate::lab::pause;

/// The limit for an answer of the agent itself; it runs in the guest's user space, which may
/// starve.
const TIME_LIMIT: Duration = Duration::from_secs(150);

pub struct Agent {
    path: PathBuf,
    socket: JsonSocket,
    synced: u64,
    /// The number of the last request. The agent repeats it in its answer (QMP's `id`), so that a
    /// late answer is not mistaken for the next one.
    requests: u64,
}

#[derive(Clone, Debug)]
pub struct Output {
    /// 128 + the signal, where one ended it.
    pub status: i64,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The standard output of a command that has succeeded.
    #[track_caller]
    pub fn expect_ok(self, command: &str) -> String {
        assert!(
            self.status == 0,
            "in the guest: {command}: status {}\n{}{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self.stdout
    }
}

impl Agent {
    pub fn connect(path: &Path) -> Result<Agent, String> {
        let socket = JsonSocket::connect(path, TIME_LIMIT)
            .map_err(|error| format!("connecting to the agent's port: {error}"))?;
        Ok(Agent { path: path.to_owned(), socket, synced: 0, requests: 0 })
    }

    /// True when the agent answers within `within`. A request that is sent before it runs may be
    /// kept or lost by the port: each request has its number.
    pub fn answers(&mut self, within: Duration) -> bool {
        self.synced += 1;
        let number = self.synced;
        let answer =
            self.socket.send(&json!({ "execute": "guest-sync", "arguments": { "id": number } }));
        let deadline = Instant::now() + within;
        if answer.is_ok() {
            loop {
                match self.socket.receive(deadline.saturating_duration_since(Instant::now())) {
                    Ok(answer) if answer["return"] == number => return true,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return false,
                    Err(_) => break,
                }
            }
        }
        // The port is reset while the guest boots.
        if let Ok(socket) = JsonSocket::connect(&self.path, within) {
            self.socket = socket;
        }
        false
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        self.requests += 1;
        let number = self.requests;
        let question = json!({ "execute": command, "arguments": arguments, "id": number });
        self.socket.send(&question).map_err(|error| format!("{command}: {error}"))?;
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut answer = self
                .socket
                .receive(left)
                .map_err(|error| format!("the guest's agent does not answer {command}: {error}"))?;
            if answer["id"] != number {
                continue;
            }
            if let Some(error) = answer.get("error") {
                return Err(format!("{command}: {error}"));
            }
            return Ok(answer["return"].take());
        }
    }

    /// Runs a shell command line.
    pub fn shell(&mut self, command: &str, within: Duration) -> Result<Output, String> {
        let arguments =
            json!({ "path": "/bin/sh", "arg": ["-c", command], "capture-output": true });
        let process = self.ask("guest-exec", arguments)?["pid"].take();
        let deadline = Instant::now() + within;
        let mut next = Duration::from_millis(15);
        loop {
            let answer = self.ask("guest-exec-status", json!({ "pid": process }))?;
            if answer["exited"] == true {
                let text = |key: &str| decoded(answer[key].as_str().unwrap_or_default());
                let status = answer["exitcode"]
                    .as_i64()
                    .unwrap_or_else(|| 128 + answer["signal"].as_i64().unwrap_or_default());
                return Ok(Output { status, stdout: text("out-data"), stderr: text("err-data") });
            }
            if Instant::now() > deadline {
                return Err(format!("in the guest, not ended within {within:?}: {command}"));
            }
            pause(next);
            next = (next * 3 / 2).min(Duration::from_millis(300));
        }
    }
}

fn decoded(text: &str) -> String {
    let bytes =
        BASE64_STANDARD.decode(text).unwrap_or_else(|error| panic!("the agent's output: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}
