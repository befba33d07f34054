//! diskvitals-notify in the guest, as its own user under the shipped unit: a mail and a webhook
//! arrive soon after the finding, once; with the same id when it is killed before the answer. With
//! the drop-in of docs/notifications.md it uses Postfix's setgid sendmail.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::lab::context::Context;

const DIRECTORY: &str = "/run/lab-receiver";
const FULL: &str = "/srv/notified";
const SOON: SignedDuration = SignedDuration::from_secs(10);

/// What a server of `receiver` got: protocol, id, time, text.
struct Received {
    protocol: String,
    id: String,
    at: Timestamp,
    text: String,
}

pub fn mail_and_webhook(context: &mut Context) {
    crate::lab::csi::copy_client(context);
    context.sh(&format!(
        "cp /lab/lab-client /run/lab-receiver-program && mkdir -p {DIRECTORY} && systemd-run -q --unit=lab-receiver /run/lab-receiver-program receiver {DIRECTORY}"
    ));
    context.sh(r#"cat > /etc/diskvitals/notify.toml <<'END'
[[target]]
name = "mail"
type = "smtp"
server = "127.0.0.1:2525"
tls = "none"
from = "diskvitals@lab.example"
to = ["ops@lab.example"]
[[target]]
name = "hook"
type = "webhook"
url = "http://127.0.0.1:8025/hook"
END
systemctl restart diskvitals-notify"#);
    mount_small(context);
    fill(context);
    let (since, subject) = finding(context);
    for protocol in ["smtp", "http"] {
        let message = arrival(context, protocol, "raised", 1);
        let delay = message.at.duration_since(since);
        println!("{protocol}: {delay:#} after the finding");
        assert!(delay <= SOON, "{protocol}: {delay:#} after the finding");
        for part in [FULL, "OutOfSpace", "lab"] {
            assert!(message.text.contains(part), "{part}: {}", message.text);
        }
    }
    assert_eq!(
        context.sh("stat -c %U /proc/$(systemctl show -P MainPID diskvitals-notify)"),
        "diskvitals-notify"
    );

    context.sh(&format!("rm {FULL}/file"));
    context.expect_cleared(&subject, "OutOfSpace");
    for protocol in ["smtp", "http"] {
        arrival(context, protocol, "cleared", 1);
    }
    for ((protocol, id), count) in counts(context) {
        assert_eq!(count, 1, "{protocol} {id}");
    }

    // It has the whole mail, and does not say so: the sender cannot know that it arrived.
    context.sh(&format!("touch {DIRECTORY}/hold"));
    fill(context);
    let first = arrival(context, "smtp", "raised", 2);
    context.sh("systemctl kill -s KILL diskvitals-notify");
    context.sh(&format!("rm {DIRECTORY}/hold"));
    let second = arrival(context, "smtp", "raised", 3);
    assert_eq!(first.id, second.id);
    let hooks: Vec<Received> = received(context)
        .into_iter()
        .filter(|it| it.protocol == "http" && it.text.contains("raised"))
        .collect();
    assert!(hooks.len() >= 2);
    assert!(hooks[1..].iter().all(|it| it.id == hooks[1].id));

    context.sh(&format!("rm {FULL}/file"));
    context.expect_cleared(&subject, "OutOfSpace");
    context.unmount(FULL);
    context.sh(
        "systemctl stop diskvitals-notify lab-receiver && rm /etc/diskvitals/notify.toml /root/notified.img",
    );
}

/// The part of docs/notifications.md about it: the drop-in and the target.
fn documented() -> [String; 2] {
    let page = include_str!("../../docs/notifications.md");
    let (_, part) = page.split_once("\n## sendmail with a setgid queue\n").expect("the part");
    let (part, _) = part.split_once("\n## ").expect("another part");
    let mut blocks: Vec<String> = Vec::new();
    let mut in_block = false;
    for line in part.lines() {
        if let Some(code) = line.strip_prefix("    ") {
            if !in_block {
                blocks.push(String::new());
            }
            let block = blocks.last_mut().expect("a block");
            block.push_str(code);
            block.push('\n');
        }
        in_block = line.starts_with("    ");
    }
    blocks.try_into().expect("two blocks")
}

/// Text of all mails that Postfix has delivered to root.
const MAILBOX: &str = "cat /var/mail/root 2>/dev/null; true";

pub fn sendmail(context: &mut Context) {
    let [drop_in, target] = documented();
    // Delivery to this host only, without DNS.
    context.sh(
        "postconf -e myhostname=lab.example mydestination=lab.example,localhost inet_interfaces=loopback-only \
         inet_protocols=ipv4 alias_maps= compatibility_level=3.6 && postfix start",
    );
    context.sh(&format!(
        "cat > /etc/diskvitals/notify.toml <<'END'\n{target}END\nsystemctl restart diskvitals-notify"
    ));
    mount_small(context);
    fill(context);
    let (_, subject) = finding(context);
    // Its group is not that of the queue: the mail waits, and the log says what sendmail said.
    context.until("the failure is in the log", |context| {
        let log = context.sh("journalctl -u diskvitals-notify -o cat --no-pager");
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains("the target cannot be used"))?;
        println!("{line}");
        Some(())
    });
    assert!(!context.sh(MAILBOX).contains("X-Diskvitals-Id"));

    context.sh(&format!(
        "mkdir -p /etc/systemd/system/diskvitals-notify.service.d && cat > /etc/systemd/system/diskvitals-notify.service.d/sendmail.conf <<'END'\n{drop_in}END\n\
         systemctl daemon-reload && systemctl restart diskvitals-notify"
    ));
    let mails = context.until("the mail is delivered", |context| {
        let mails = context.sh(MAILBOX);
        mails.contains("X-Diskvitals-Id").then_some(mails)
    });
    assert_eq!(mails.matches("\nX-Diskvitals-Id:").count(), 1, "{mails}");
    for part in ["OutOfSpace", "From: diskvitals@node7.example.com"] {
        assert!(mails.contains(part), "{part}: {mails}");
    }
    // What the drop-in leaves: its own user, no capability, a read-only system.
    assert_eq!(
        context.sh("grep -E '^(Cap(Eff|Prm)|NoNewPrivs)' /proc/$(systemctl show -P MainPID diskvitals-notify)/status | tr -d '\t' | sort"),
        "CapEff:0000000000000000\nCapPrm:0000000000000000\nNoNewPrivs:0"
    );
    assert_eq!(
        context.sh("systemctl show -P ProtectSystem -P User diskvitals-notify | sort"),
        "diskvitals-notify\nstrict"
    );

    context.sh(&format!("rm {FULL}/file"));
    context.expect_cleared(&subject, "OutOfSpace");
    context.unmount(FULL);
    context.sh(
        "systemctl stop diskvitals-notify && postfix stop && rm -r /etc/systemd/system/diskvitals-notify.service.d /etc/diskvitals/notify.toml /root/notified.img \
         && systemctl daemon-reload",
    );
}

/// A small filesystem at `FULL`. Its space while it is empty is known before it changes.
fn mount_small(context: &mut Context) {
    context.sh(&format!(
        "truncate -s 64M /root/notified.img && mkfs.ext4 -q -m 0 /root/notified.img && mkdir -p {FULL} && mount -o loop /root/notified.img {FULL}"
    ));
    context.until("the filesystem is a volume", |context| {
        (context.guest.ask(&format!("volume {FULL}")).ok()?["health"] == "HEALTH_GOOD")
            .then_some(())
    });
}

fn fill(context: &mut Context) {
    context.sh(&format!("fallocate -l $(($(stat -f -c '%a * %S' {FULL}) - 1048576)) {FULL}/file"));
}

/// When the filesystem was found full, and its volume.
fn finding(context: &mut Context) -> (Timestamp, String) {
    context.until("the filesystem is full", |context| {
        let found = context.findings(false).into_iter().find(|finding| {
            let message = finding["message"].as_str().unwrap_or_default();
            finding["reason"] == "OutOfSpace" && message.contains(FULL)
        })?;
        let since = found["since"].as_str()?.parse().ok()?;
        Some((since, found["subject"]["id"].as_str()?.to_owned()))
    })
}

fn received(context: &mut Context) -> Vec<Received> {
    let lines = context.sh(&format!("cat {DIRECTORY}/received 2>/dev/null; true"));
    let one = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("a line of the receiver");
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Received {
            protocol: text("protocol"),
            id: text("id"),
            at: text("at").parse().expect("a time"),
            text: text("text"),
        }
    };
    lines.lines().map(one).collect()
}

/// The `nth` message of this protocol about this transition.
fn arrival(context: &mut Context, protocol: &str, transition: &str, nth: usize) -> Received {
    let word = match (protocol, transition) {
        ("smtp", "raised") => "SUSPECT",
        ("smtp", _) => "CLEARED",
        (_, transition) => transition,
    };
    context.until(&format!("{protocol} has {transition} {nth}"), |context| {
        let of_it = received(context).into_iter();
        let mut of_it = of_it.filter(|it| it.protocol == protocol && has_word(it, word));
        of_it.nth(nth - 1)
    })
}

fn has_word(message: &Received, word: &str) -> bool {
    match message.protocol.as_str() {
        "smtp" => {
            let subject = message.text.lines().find(|line| line.starts_with("Subject:"));
            subject.is_some_and(|subject| subject.to_uppercase().contains(word))
        }
        _ => message.text.contains(&format!("\"transition\":\"{word}\"")),
    }
}

fn counts(context: &mut Context) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for message in received(context) {
        *counts.entry((message.protocol, message.id)).or_default() += 1;
    }
    counts
}
