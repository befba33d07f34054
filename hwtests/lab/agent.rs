//! qemu-guest-agent: commands in the guest, with their exit code and output.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::lab::json_socket::JsonSocket;
use crate::lab::pause;

/// An answer of the agent itself; it works in the guest's user space, which may starve.
const PATIENCE: Duration = Duration::from_secs(150);

pub struct Agent {
    path: PathBuf,
    socket: JsonSocket,
    synced: u64,
    /// Of the last question. The agent repeats it in the answer (QMP's `id`): one that comes too
    /// late is not taken for the next question's.
    asked: u64,
}

#[derive(Clone, Debug)]
pub struct Output {
    /// 128 + the signal, where one ended it.
    pub status: i64,
    pub stdout: String,
    pub stderr: String,
}

impl Agent {
    pub fn connect(path: &Path) -> Result<Agent, String> {
        let socket = JsonSocket::connect(path, PATIENCE)
            .map_err(|error| format!("connecting to the agent's port: {error}"))?;
        Ok(Agent {
            path: path.to_owned(),
            socket,
            synced: 0,
            asked: 0,
        })
    }

    /// True when the agent answers within `within`. What is sent before it runs is kept or lost, as
    /// the port likes: each question has its number.
    pub fn answers(&mut self, within: Duration) -> bool {
        self.synced += 1;
        let number = self.synced;
        let asked = self
            .socket
            .send(&json!({ "execute": "guest-sync", "arguments": { "id": number } }));
        let deadline = Instant::now() + within;
        if asked.is_ok() {
            loop {
                match self
                    .socket
                    .receive(deadline.saturating_duration_since(Instant::now()))
                {
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
        self.asked += 1;
        let number = self.asked;
        let question = json!({ "execute": command, "arguments": arguments, "id": number });
        self.socket
            .send(&question)
            .map_err(|error| format!("{command}: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
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
                return Ok(Output {
                    status,
                    stdout: text("out-data"),
                    stderr: text("err-data"),
                });
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "in the guest, not ended within {within:?}: {command}"
                ));
            }
            pause(next);
            next = (next * 3 / 2).min(Duration::from_millis(300));
        }
    }
}

fn decoded(text: &str) -> String {
    let bytes = BASE64_STANDARD
        .decode(text)
        .unwrap_or_else(|error| panic!("the agent's output: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}
