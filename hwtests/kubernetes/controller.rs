//! The controller beside the cluster, with the rights that the chart gives it and durations of
//! seconds (feature `hwtests`): the program in the image has no such switch.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{self, HostProgram, command, kubectl};
use crate::fixture::{Fixture, NAMESPACE};
use crate::programs::built_program;

/// The controller's rights and admission policies, and no controller: the tests start their own.
pub fn values(duties: &[&str]) -> Value {
    json!({"enabled": true, "replicas": 0, "duties": duties})
}

pub fn start(fixture: &Fixture, timing: &str, arguments: &[&str]) -> HostProgram {
    HostProgram::start("fleet", &mut program(fixture, timing, arguments))
}

/// As its account in the chart. `timing`: DISKVITALS_FLEET_TIMING.
pub fn program(fixture: &Fixture, timing: &str, arguments: &[&str]) -> Command {
    let mut program = command(built_program("diskvitals-fleet"));
    program
        .args(["--log-format", "text", "--lease-namespace", NAMESPACE])
        .args(arguments)
        .env("KUBECONFIG", kubeconfig(fixture, NAMESPACE, "diskvitals-fleet"))
        .env("DISKVITALS_FLEET_TIMING", timing);
    program
}

/// A file with which a program is this account.
pub fn kubeconfig(fixture: &Fixture, namespace: &str, account: &str) -> PathBuf {
    let token = kubectl(&["-n", namespace, "create", "token", account, "--duration=4h"]);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:26443", "certificate-authority": cluster::run().join("pki/ca.crt")}}],
        "users": [{"name": account, "user": {"token": token.trim()}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": account, "namespace": namespace}}],
    });
    let file = fixture.path(&format!("{account}.kubeconfig"));
    std::fs::write(&file, config.to_string()).expect("its kubeconfig");
    file
}
