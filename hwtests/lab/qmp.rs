//! QMP (docs/interop/qmp-spec in QEMU) controls the guest's hardware. A refused command ends the
//! scenario, because the scenario is wrong.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::json_socket::JsonSocket;

/// QEMU answers at once; under software emulation on a busy machine not always.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub struct Qmp {
    socket: JsonSocket,
    events: Vec<Value>,
}

impl Qmp {
    /// Fails when QEMU ends in the meantime, as it does where an accelerator does not work.
    pub fn connect(path: &Path) -> Result<Qmp, String> {
        let mut socket = JsonSocket::connect(path, TIME_LIMIT)
            .map_err(|error| format!("connecting to QMP: {error}"))?;
        socket.receive(TIME_LIMIT).map_err(|error| format!("QMP's greeting: {error}"))?;
        let mut qmp = Qmp { socket, events: Vec::new() };
        qmp.try_run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    pub fn run(&mut self, command: &str, arguments: Value) -> Value {
        self.try_run(command, arguments).unwrap_or_else(|error| panic!("QMP {command}: {error}"))
    }

    pub fn try_run(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        self.socket
            .send(&json!({ "execute": command, "arguments": arguments }))
            .map_err(|error| error.to_string())?;
        loop {
            let mut answer = self.socket.receive(TIME_LIMIT).map_err(|error| error.to_string())?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(error.to_string());
            }
            self.events.push(answer);
        }
    }

    /// Removes a device and waits until the guest has released it.
    pub fn unplug(&mut self, id: &str) {
        self.events.clear();
        self.run("device_del", json!({ "id": id }));
        let deadline = Instant::now() + TIME_LIMIT;
        let gone =
            |event: &Value| event["event"] == "DEVICE_DELETED" && event["data"]["device"] == id;
        while !self.events.iter().any(gone) {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self
                .socket
                .receive(left)
                .unwrap_or_else(|error| panic!("the guest does not let {id} go: {error}"));
            self.events.push(event);
        }
    }
}
