//! diskvitalsd in the guest: installed as an administrator does (scripts/install), run by systemd
//! as shipped, queried with its own command line.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::lab::guest::Guest;
use crate::programs::built_program;

/// Short intervals where a scenario would wait for them. `reconcile_interval` keeps its default:
/// drives that appear and disappear must be noticed through udev's events.
const CONFIG: &str = r#"
[probes]
interval = "2s"
[io]
interval = "2s"
[smart]
command = "/usr/sbin/smartctl"
shortest_interval = "1s"
suspect_interval = "5s"
idle_interval = "5s"
timeout = "20s"
nvme_events = true
"#;

/// Short quiet periods, so that suspect drives recover within a scenario. Added separately.
const QUIET_SOON: &str = "[errors]\nquiet_after = \"20s\"\n";

const CONFIG_FILE: &str = "/etc/diskvitals/diskvitals.toml";

/// Below `share`, everything that `scripts/install` puts on a host, without debug information,
/// which would be locked in the guest's memory.
#[expect(clippy::disallowed_methods, reason = "the script under test")]
pub fn install_into(share: &Path) {
    let root = share.join("root");
    let built = Path::new(built_program("diskvitalsd"));
    let profile = built.parent().and_then(Path::file_name).expect("target/PROFILE/diskvitalsd");
    let run = |command: &mut Command| {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install");
    run(Command::new(script).env("DESTDIR", &root).env("DISKVITALS_PROFILE", profile));
    for program in ["sbin/diskvitalsd", "bin/diskvitals", "bin/diskvitals-csi"] {
        run(Command::new("/usr/bin/strip").arg(root.join("usr/local").join(program)));
    }
}

impl Guest {
    /// Installs and starts it, and streams the guest's kernel log and the output of the daemon's
    /// watch.
    pub fn start_daemon(&mut self) {
        install_into(&self.share());
        // The agent may answer before the shared directory is mounted.
        self.expect_ok("systemctl start lab.mount && udevadm settle --timeout=120");
        self.expect_ok("cp -a /lab/root/. /");
        self.expect_ok(&format!("cat > {CONFIG_FILE} <<'END'{CONFIG}END"));
        // cat reads one record at a time; a ring buffer that overflows ends it, and it restarts at
        // the oldest record that is left.
        for (unit, command) in [
            ("lab-kmsg", "cat /dev/kmsg"),
            ("lab-watch", "/usr/local/bin/diskvitals watch -o json"),
        ] {
            let port = unit.replace('-', ".");
            self.expect_ok(&format!(
                "systemd-run -q --unit={unit} -p Restart=always -p RestartSec=1 -p StartLimitIntervalSec=0 \
                 /bin/sh -c 'exec {command} > /dev/virtio-ports/{port}'"
            ));
        }
        self.expect_ok("systemd-sysusers diskvitals.conf && systemd-tmpfiles --create diskvitals.conf && systemctl daemon-reload");
        // The unit is of Type=notify: start returns when the daemon has reported that it is ready.
        self.expect_ok("systemctl start diskvitalsd");
    }

    /// Quiet periods are short from now on.
    pub fn quiet_soon(&mut self) {
        self.expect_ok(&format!(
            "cat >> {CONFIG_FILE} <<'END'\n{QUIET_SOON}END\nsystemctl reload diskvitalsd"
        ));
    }

    pub fn ask(&mut self, question: &str) -> Result<Value, String> {
        let output = self.shell(&format!("/usr/local/bin/diskvitals {question} -o json"));
        if output.status != 0 {
            return Err(format!("diskvitals {question}: {}{}", output.stdout, output.stderr));
        }
        serde_json::from_str(&output.stdout)
            .map_err(|error| format!("diskvitals {question}: {error}: {}", output.stdout))
    }

    fn shell(&mut self, command: &str) -> crate::lab::agent::Output {
        self.agent
            .shell(command, Duration::from_secs(180))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn expect_ok(&mut self, command: &str) -> String {
        self.shell(command).expect_ok(command)
    }
}
