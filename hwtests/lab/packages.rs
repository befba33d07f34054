//! The packages of scripts/package in the guest: installed, upgraded and removed with dpkg and with
//! rpm, as an administrator does. The daemon of the other scenarios is out of the way meanwhile.
//!
//! They have the programs of this build. With DISKVITALS_LAB_PACKAGES=DIR (target/package, or a
//! release) the packages of this folder are installed instead, and their programs are in the upgrade.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::context::Context;
use crate::programs::built_program;

/// A filesystem that is nearly full, so that there is a finding to acknowledge.
const FULL: &str = "/srv/full";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What scripts/install has put into the guest for the other scenarios.
const INSTALLED: &str = "/etc/diskvitals /var/lib/diskvitals /etc/systemd/system/diskvitalsd.service /etc/systemd/system/diskvitals-notify.service \
    /usr/local/sbin/diskvitalsd /usr/local/sbin/diskvitals-notify /usr/local/bin/diskvitals \
    /usr/lib/sysusers.d/diskvitals.conf /usr/lib/tmpfiles.d/diskvitals.conf /usr/lib/udev/rules.d/60-diskvitals.rules";

pub fn debian(context: &mut Context) {
    build(context);
    set_aside(context);

    context.sh("dpkg -i /lab/diskvitals-1.deb");
    assert_eq!(
        context.sh("systemctl is-enabled diskvitalsd; systemctl is-active diskvitalsd"),
        "enabled\nactive"
    );
    let id = acknowledge(context);
    let before = main_pid(context);
    context.sh("dpkg -i /lab/diskvitals-2.deb");
    assert_eq!(context.sh("dpkg-query -W -f '${Version}' diskvitals | sed 's/.*-//'"), "2");
    assert_ne!(before, main_pid(context));
    acknowledged(context, &id);
    context.sh("grep -q '# mine' /etc/diskvitals/diskvitals.toml");

    context.sh("dpkg -r diskvitals");
    removed(context);
    context.sh("grep -q '# mine' /etc/diskvitals/diskvitals.toml");
    context.sh("dpkg -i /lab/diskvitals-2.deb");
    acknowledged(context, &id);

    // A disabled daemon stays disabled.
    context.sh("systemctl disable --now -q diskvitalsd && dpkg -i /lab/diskvitals-1.deb");
    assert_eq!(
        context.sh("systemctl is-enabled diskvitalsd; systemctl is-active diskvitalsd; true"),
        "disabled\ninactive"
    );

    // Of the administrator: where messages go, a password, a volume.
    context.sh("touch /etc/diskvitals/notify.toml /etc/diskvitals/smtp-password");
    context.sh("mkdir -p /var/lib/diskvitals/pool && echo data > /var/lib/diskvitals/pool/volume.img && dpkg -P diskvitals");
    assert_eq!(
        context.sh("find /var/lib/diskvitals /var/lib/diskvitals-notify /etc/diskvitals /run/diskvitals /etc/systemd/system/multi-user.target.wants/diskvitalsd.service -type f -o -type l 2>/dev/null; true"),
        "/var/lib/diskvitals/pool/volume.img"
    );
    restore(context);
}

/// With Debian's rpm, which knows none of the packages that it depends on.
pub fn rpm(context: &mut Context) {
    const RPM: &str = "rpm --nodeps --force-debian --nosignature";
    build(context);
    set_aside(context);

    context.sh(&format!("{RPM} -i /lab/diskvitals-1.rpm"));
    // As the distribution's presets say: enabled here, and started by the administrator.
    assert_eq!(
        context.sh("systemctl is-enabled diskvitalsd diskvitals-notify; systemctl is-active diskvitalsd; true"),
        "enabled\nenabled\ninactive"
    );
    context.sh("systemctl start diskvitalsd");
    let id = acknowledge(context);
    let before = main_pid(context);
    context.sh(&format!("{RPM} -U /lab/diskvitals-2.rpm"));
    assert_eq!(context.sh("rpm -q --qf '%{RELEASE}' diskvitals"), "2");
    assert_ne!(before, main_pid(context));
    acknowledged(context, &id);
    context.sh("grep -q '# mine' /etc/diskvitals/diskvitals.toml");
    context.sh(
        "rpm -V --nodeps --nosignature diskvitals | grep -v ' c /etc/diskvitals/' && exit 1; true",
    );

    context.sh("systemctl disable --now -q diskvitalsd");
    context.sh(&format!("{RPM} -U --oldpackage /lab/diskvitals-1.rpm"));
    assert_eq!(
        context.sh("systemctl is-enabled diskvitalsd; systemctl is-active diskvitalsd; true"),
        "disabled\ninactive"
    );
    context.sh("systemctl enable --now -q diskvitalsd");
    acknowledged(context, &id);

    context.sh("rpm -e --nodeps --force-debian diskvitals");
    removed(context);
    // rpm keeps a changed configuration under another name.
    context.sh("grep -q '# mine' /etc/diskvitals/diskvitals.toml.rpmsave");
    context.sh(&format!("{RPM} -i /lab/diskvitals-2.rpm && systemctl start diskvitalsd"));
    acknowledged(context, &id);
    context.sh("systemctl stop diskvitalsd && rpm -e --nodeps --force-debian diskvitals");
    context.sh("rm -rf /etc/diskvitals /var/lib/diskvitals");
    restore(context);
}

fn set_aside(context: &mut Context) {
    context.sh(&format!(
        "systemctl stop diskvitalsd diskvitals-notify && for file in {INSTALLED}; do install -d /root/aside$(dirname $file) && mv $file /root/aside$file; done \
        && rm -rf /run/diskvitals && userdel diskvitals-notify && groupdel diskvitals && systemctl daemon-reload"
    ));
    context.sh(&format!(
        "truncate -s 64M /root/full.img && mkfs.ext4 -q -m 0 /root/full.img && mkdir -p {FULL} && mount -o loop /root/full.img {FULL} \
         && fallocate -l $(($(stat -f -c '%a * %S' {FULL}) - 1048576)) {FULL}/file"
    ));
}

fn restore(context: &mut Context) {
    context.sh(&format!(
        "umount {FULL} && rm -rf /root/full.img /var/lib/diskvitals && cp -a /root/aside/. / && rm -r /root/aside && udevadm control --reload \
         && systemd-sysusers diskvitals.conf && systemd-tmpfiles --create diskvitals.conf && systemctl daemon-reload && systemctl start diskvitalsd"
    ));
    context.until("the daemon of the lab answers again", |context| {
        let node = context.guest.ask("status").ok()?;
        (node["settled"] == true).then_some(())
    });
}

/// The package's own daemon and users are there: acknowledges a finding, changes the configuration.
fn acknowledge(context: &mut Context) -> String {
    assert_eq!(
        context.sh("systemctl show -P ExecStart diskvitalsd diskvitals-notify | grep -o 'path=[^ ]*' && getent group diskvitals | cut -d: -f1,4"),
        "path=/usr/sbin/diskvitalsd\npath=/usr/sbin/diskvitals-notify\ndiskvitals:diskvitals-notify"
    );
    let id = context.until("the installed daemon finds the full filesystem", full);
    context.sh("echo '# mine' >> /etc/diskvitals/diskvitals.toml");
    context.sh(&format!("diskvitals ack {id} --note known --yes"));
    id
}

/// The package is removed, and the history is not.
fn removed(context: &mut Context) {
    context.sh("! pgrep -x diskvitalsd && ! command -v diskvitals && test ! -e /usr/lib/systemd/system/diskvitalsd.service");
    context.sh("test -s /var/lib/diskvitals/state.db");
}

fn main_pid(context: &mut Context) -> String {
    let pid = context.sh("systemctl show -P MainPID diskvitalsd");
    assert_ne!(pid, "0", "it runs");
    pid
}

/// Two revisions of both packages, as diskvitals-REVISION.deb and .rpm in the shared folder.
fn build(context: &Context) {
    let share = context.guest.share();
    // Once for all scenarios of a boot.
    if share.join("diskvitals-2.rpm").exists() {
        return;
    }
    let given = std::env::var_os("DISKVITALS_LAB_PACKAGES").map(PathBuf::from);
    let programs = match &given {
        Some(given) => {
            copy(given, "1", &share);
            programs_of(&share)
        }
        None => {
            let built = Path::new(built_program("diskvitalsd")).parent();
            let built = built.expect("target/PROFILE/diskvitalsd").to_owned();
            package("1", &built, &share);
            built
        }
    };
    package("2", &programs, &share);
}

fn package(revision: &str, programs: &Path, share: &Path) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut script = command(repository.join("scripts/package"));
    script.arg("x86_64").env("DISKVITALS_BIN", programs).env("DISKVITALS_REVISION", revision);
    run(&mut script);
    copy(&repository.join("target/package"), revision, share);
}

fn copy(from: &Path, revision: &str, share: &Path) {
    for (name, kind) in [
        (format!("diskvitals_{VERSION}-{revision}_amd64.deb"), "deb"),
        (format!("diskvitals-{VERSION}-{revision}.x86_64.rpm"), "rpm"),
    ] {
        let package = from.join(name);
        std::fs::copy(&package, share.join(format!("diskvitals-{revision}.{kind}")))
            .unwrap_or_else(|error| panic!("copying {}: {error}", package.display()));
    }
}

/// The programs in the first package, in one folder.
fn programs_of(share: &Path) -> PathBuf {
    let (unpacked, programs) = (share.join("unpacked"), share.join("programs"));
    run(command("/usr/bin/dpkg-deb").arg("-x").arg(share.join("diskvitals-1.deb")).arg(&unpacked));
    std::fs::create_dir_all(&programs).expect("a folder");
    for folder in ["usr/sbin", "usr/bin"] {
        let files = std::fs::read_dir(unpacked.join(folder)).expect("programs");
        for file in files.flatten() {
            std::fs::copy(file.path(), programs.join(file.file_name())).expect("copied");
        }
    }
    programs
}

#[expect(clippy::disallowed_methods, reason = "the script under test")]
fn command(program: impl AsRef<Path>) -> Command {
    Command::new(program.as_ref())
}

fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The id of the finding about the full filesystem.
fn full(context: &mut Context) -> Option<String> {
    let answer = context.try_sh("diskvitals findings --reason OutOfSpace -o json");
    let found: serde_json::Value = serde_json::from_str(&answer.stdout).ok()?;
    let findings = found["findings"].as_array()?;
    let of_it = findings.iter().find(|finding| {
        let message = finding["message"].as_str();
        message.is_some_and(|message| message.contains(FULL))
    })?;
    of_it["id"].as_str().map(str::to_owned)
}

fn acknowledged(context: &mut Context, id: &str) {
    context.until("the acknowledgement is still there", |context| {
        let answer = context.try_sh(&format!("diskvitals findings {id} -o json"));
        let found: serde_json::Value = serde_json::from_str(&answer.stdout).ok()?;
        let text = found.to_string();
        text.contains("\"note\":\"known\"").then_some(())
    });
}
