//! The kubelet's requests to a CSI driver, from a command line in the guest. It is this same
//! program, copied there (`lab csi-client SOCKET CALL …`).
//!
//! One call, one line of JSON: `{"ok": …}`, or `{"error": …}` with the gRPC code.

use std::path::Path;
use std::process::ExitCode;

use diskvitals_csi::wire::VolumeCapability;
use diskvitals_csi::wire::volume_capability::access_mode::Mode;
use serde_json::{Value, json};
use tonic::Status;

use crate::csi_calls::{Csi, mount};

pub fn main(arguments: &[String]) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer = match runtime.block_on(call(arguments)) {
        Ok(value) => json!({ "ok": value }),
        Err(status) => {
            json!({ "error": format!("{:?}", status.code()), "message": status.message() })
        }
    };
    println!("{answer}");
    ExitCode::SUCCESS
}

async fn call(arguments: &[String]) -> Result<Value, Status> {
    let parts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [socket, parts @ ..] = parts.as_slice() else {
        return Err(Status::invalid_argument("no socket"));
    };
    let csi = Csi::new(Path::new(socket));
    match *parts {
        ["create", name, kind, bytes] => {
            let made = csi
                .create_with(name, number(bytes)?, ext4(), &[("diskvitals.io/kind", kind)])
                .await;
            made.map(|handle| json!({ "handle": handle }))
        }
        ["delete", handle] => csi.delete(handle).await.map(Value::from),
        ["stage", handle, staging] => {
            csi.stage(handle, Path::new(staging), ext4()).await.map(Value::from)
        }
        ["publish", handle, staging, target] => csi
            .publish(handle, Path::new(staging), Path::new(target), ext4(), false)
            .await
            .map(Value::from),
        ["expand", handle, target, bytes] => {
            csi.expand(handle, Path::new(target), number(bytes)?).await.map(Value::from)
        }
        ["unpublish", handle, target] => {
            csi.unpublish(handle, Path::new(target)).await.map(Value::from)
        }
        ["unstage", handle, staging] => {
            csi.unstage(handle, Path::new(staging)).await.map(Value::from)
        }
        ["health", handle] => {
            let entries = csi.health(handle).await?;
            Ok(entries
                .iter()
                .map(|entry| {
                    entry_json(entry.status().as_str_name(), &entry.reason, &entry.message)
                })
                .collect())
        }
        ["storage"] => {
            let entries = csi.storage().await?;
            Ok(entries
                .iter()
                .map(|entry| {
                    entry_json(entry.status().as_str_name(), &entry.reason, &entry.message)
                })
                .collect())
        }
        _ => Err(Status::invalid_argument(format!("no such call: {parts:?}"))),
    }
}

fn entry_json(status: &str, reason: &str, message: &str) -> Value {
    json!({ "status": status, "reason": reason, "message": message })
}

fn number(text: &str) -> Result<i64, Status> {
    text.parse().map_err(|error| Status::invalid_argument(format!("{text}: {error}")))
}

fn ext4() -> VolumeCapability {
    mount(Mode::SingleNodeWriter, "ext4")
}
