//! The .deb of scripts/package in the guest: installed, upgraded, removed and purged with dpkg, as
//! an administrator does. The daemon of the other scenarios is out of the way meanwhile.

use std::path::Path;
use std::process::Command;

use crate::lab::context::Context;

/// A filesystem that is nearly full, so that there is a finding to acknowledge.
const FULL: &str = "/srv/full";

pub fn debian(context: &mut Context) {
    let share = context.guest.share();
    for revision in ["1", "2"] {
        build(revision, &share);
    }
    context.sh("systemctl stop diskvitalsd && mkdir /root/aside && mv /etc/diskvitals /root/aside/etc && mv /var/lib/diskvitals /root/aside/state \
        && mv /etc/systemd/system/diskvitalsd.service /root/aside/ && mv /usr/local/sbin/diskvitalsd /root/aside/ && mv /usr/local/bin/diskvitals /root/aside/ \
        && rm -rf /run/diskvitals && groupdel diskvitals && systemctl daemon-reload");
    context.sh(&format!(
        "truncate -s 64M /root/full.img && mkfs.ext4 -q -m 0 /root/full.img && mkdir -p {FULL} && mount -o loop /root/full.img {FULL} \
         && fallocate -l $(($(stat -f -c '%a * %S' {FULL}) - 1048576)) {FULL}/file"
    ));

    context.sh("dpkg -i /lab/diskvitals-1.deb");
    assert_eq!(
        context.sh("systemctl show -P ExecStart diskvitalsd | grep -o 'path=[^ ]*' && systemctl is-enabled diskvitalsd && getent group diskvitals | cut -d: -f1"),
        "path=/usr/sbin/diskvitalsd\nenabled\ndiskvitals"
    );
    let id = context.until("the installed daemon finds the full filesystem", full);
    context.sh("echo '# mine' >> /etc/diskvitals/diskvitals.toml");
    context.sh(&format!("diskvitals ack {id} --note known --yes"));

    let before = context.sh("systemctl show -P MainPID diskvitalsd");
    context.sh("dpkg -i /lab/diskvitals-2.deb");
    assert_eq!(
        context.sh("dpkg-query -W -f '${Version}' diskvitals | sed 's/.*-//'"),
        "2"
    );
    assert_ne!(before, context.sh("systemctl show -P MainPID diskvitalsd"));
    acknowledged(context, &id);
    context.sh("grep -q '# mine' /etc/diskvitals/diskvitals.toml");

    context.sh("dpkg -r diskvitals");
    context.sh("! pgrep -x diskvitalsd && ! command -v diskvitals && test ! -e /usr/lib/systemd/system/diskvitalsd.service");
    context.sh(
        "grep -q '# mine' /etc/diskvitals/diskvitals.toml && test -s /var/lib/diskvitals/state.db",
    );
    context.sh("dpkg -i /lab/diskvitals-2.deb");
    acknowledged(context, &id);

    // A disabled daemon stays disabled.
    context.sh("systemctl disable --now -q diskvitalsd && dpkg -i /lab/diskvitals-1.deb");
    assert_eq!(
        context.sh("systemctl is-enabled diskvitalsd; systemctl is-active diskvitalsd; true"),
        "disabled\ninactive"
    );

    context.sh("mkdir -p /var/lib/diskvitals/pool && echo data > /var/lib/diskvitals/pool/volume.img && dpkg -P diskvitals");
    assert_eq!(
        context.sh("find /var/lib/diskvitals /etc/diskvitals /run/diskvitals /etc/systemd/system/multi-user.target.wants/diskvitalsd.service -type f -o -type l 2>/dev/null; true"),
        "/var/lib/diskvitals/pool/volume.img"
    );

    context.sh(&format!(
        "umount {FULL} && rm -rf /root/full.img /var/lib/diskvitals && mv /root/aside/etc /etc/diskvitals && mv /root/aside/state /var/lib/diskvitals \
         && mv /root/aside/diskvitalsd.service /etc/systemd/system/ && mv /root/aside/diskvitalsd /usr/local/sbin/ && mv /root/aside/diskvitals /usr/local/bin/ \
         && cp /lab/root/usr/lib/sysusers.d/diskvitals.conf /usr/lib/sysusers.d/ && cp /lab/root/usr/lib/tmpfiles.d/diskvitals.conf /usr/lib/tmpfiles.d/ \
         && cp /lab/root/usr/lib/udev/rules.d/60-diskvitals.rules /usr/lib/udev/rules.d/ && udevadm control --reload \
         && systemd-sysusers diskvitals.conf && systemd-tmpfiles --create diskvitals.conf && systemctl daemon-reload && systemctl start diskvitalsd"
    ));
    context.until("the daemon of the lab answers again", |context| {
        let node = context.guest.ask("status").ok()?;
        (node["settled"] == true).then_some(())
    });
}

/// The package with the programs of this build, as `share`/diskvitals-REVISION.deb.
#[expect(clippy::disallowed_methods, reason = "the script under test")]
fn build(revision: &str, share: &Path) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = Path::new(env!("CARGO_BIN_EXE_diskvitalsd"));
    let output = Command::new(repository.join("scripts/package"))
        .arg("x86_64")
        .env(
            "DISKVITALS_BIN",
            built.parent().expect("target/PROFILE/diskvitalsd"),
        )
        .env("DISKVITALS_REVISION", revision)
        .output()
        .expect("scripts/package starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "scripts/package: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let version = env!("CARGO_PKG_VERSION");
    let package = format!("target/package/diskvitals_{version}-{revision}_amd64.deb");
    std::fs::copy(
        repository.join(&package),
        share.join(format!("diskvitals-{revision}.deb")),
    )
    .unwrap_or_else(|error| panic!("copying {package}: {error}"));
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
