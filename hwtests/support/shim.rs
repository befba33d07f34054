//! diskvitals-csi on a testbed, and a client that calls it as the kubelet and the sidecars do.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use diskvitals_csi::wire::ProbeRequest;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

pub use super::csi_calls::{Csi, block, mount};
use super::{SOON, Testbed, eventually};

use crate::programs::built_program;

pub const DRIVER: &str = "csi.diskvitals.io";
pub const NODE: &str = "node-1";

/// In addition to the tests' own settings: volumes are created below the testbed.
pub fn pool(testbed: &Testbed) -> String {
    std::fs::create_dir_all(testbed.path("pool")).expect("the pool's folder");
    format!("[pool]\ndirectory = \"{}\"\n", testbed.path("pool").display())
}

pub struct Shim {
    child: Child,
    endpoint: PathBuf,
    pub csi: Csi,
}

impl Shim {
    /// In mode driver. It already answers.
    pub async fn start(testbed: &Testbed, arguments: &[&str]) -> Shim {
        Shim::start_on(testbed, &testbed.path("run/csi.sock"), arguments).await
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub async fn start_on(testbed: &Testbed, endpoint: &Path, arguments: &[&str]) -> Shim {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(testbed.path("shim.log"))
            .expect("the log");
        let child = Command::new(built_program("diskvitals-csi"))
            .arg("--endpoint")
            .arg(format!("unix://{}", endpoint.display()))
            .arg("--agent")
            .arg(testbed.path("run/agent"))
            .args(["--node-id", NODE, "--log-format", "text"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("diskvitals-csi starts");
        let csi = Csi::new(endpoint);
        let shim = Shim { child, endpoint: endpoint.to_owned(), csi };
        eventually("the shim has spoken with the daemon", SOON, async || {
            let answer = shim.csi.identity().probe(ProbeRequest {}).await.ok()?;
            answer.into_inner().ready.unwrap_or(true).then_some(())
        })
        .await;
        shim
    }

    pub fn endpoint(&self) -> &Path {
        &self.endpoint
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().await.expect("its end");
    }

    /// SIGTERM: must end with 0 within 5 s and remove its socket.
    pub async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = tokio::time::timeout(Duration::from_secs(5), self.child.wait())
            .await
            .expect("it ends in time")
            .expect("its end");
        assert_eq!(status.code(), Some(0), "after SIGTERM: {status}");
        assert!(!self.endpoint.exists(), "its socket is left");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(
            i32::try_from(self.child.id().expect("it runs")).expect("a process number"),
        );
        kill(pid, signal).expect("a signal");
    }
}
