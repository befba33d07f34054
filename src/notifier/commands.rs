//! `test` and `--check-config`: what a person runs before the process does its work.

use std::fmt::Write;
use std::path::Path;

use jiff::tz::TimeZone;

use crate::config::Config;
use crate::daemon_watch;
use crate::message::{Item, Kind, Level, Notification, SCHEMA, stable_id};
use crate::node_state::NodeState;
use crate::secret::SecretFile;
use crate::targets::http::UrlSource;
use crate::targets::{Target, TargetKind};
use crate::text::{self, Writer};
use diskvitals_host::clock;

/// Text for people, and whether all was well.
pub(crate) struct Outcome {
    pub text: String,
    pub is_well: bool,
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{content}");
}

/// Sends a test to each of the targets, with what the daemon reports now.
pub(crate) async fn test(targets: &[&Target], host: &str, socket: &Path) -> Outcome {
    let (mut text, mut is_well) = (String::new(), true);
    let node = daemon_watch::read_once(socket).await;
    if let Err(why) = &node {
        line(&mut text, format_args!("diskvitalsd: {why}"));
    }
    for target in targets {
        let sent = target.deliver(&test_message(host, &node)).await;
        is_well &= sent.is_ok();
        match sent {
            Ok(answer) => line(&mut text, format_args!("{}: sent: {answer}", target.name)),
            Err(error) => line(&mut text, format_args!("{}: not sent: {error}", target.name)),
        }
    }
    Outcome { text, is_well }
}

/// A test that has not asked the daemon says nothing about the drives.
fn test_message(host: &str, node: &Result<NodeState, String>) -> Notification {
    let (now, kind) = (clock::wall_now(), Kind::Test);
    let zone = TimeZone::system();
    let writer = Writer { zone: &zone, host };
    let time = writer.local(now);
    let health = match node {
        Err(why) => {
            format!("diskvitalsd did not answer, so this says nothing about the drives: {why}\n")
        }
        Ok(node) => {
            let digest = writer.digest(Some(&node.counts), None);
            let counts = digest.text + &digest.remarks;
            let items = node.causes.iter().map(|cause| cause.item.clone());
            let items: Vec<Item> = items.collect();
            match items.is_empty() {
                true => format!("diskvitalsd answers.\n{counts}"),
                false => format!("diskvitalsd answers.\n{counts}\n{}", writer.items(&items)),
            }
        }
    };
    Notification {
        schema: SCHEMA.to_owned(),
        // Each test is another message.
        id: stable_id(["test", host, &now.to_string()]),
        kind,
        severity: Level::Info,
        host: host.to_owned(),
        time: now,
        title: text::title(kind, host, Level::Info, &[]),
        text: format!("This is a test of diskvitals-notify on {host}, sent at {time}.\n\n{health}"),
        items: Vec::new(),
        replies_to: Vec::new(),
    }
}

/// Tries what the configuration names, and sends nothing.
pub(crate) async fn check(config: &Config) -> Outcome {
    let (mut text, mut is_well) = (String::new(), true);
    match daemon_watch::ask_once(&config.socket).await {
        Ok(node) => line(
            &mut text,
            format_args!("diskvitalsd {} answers", crate::message::clean(&node.version)),
        ),
        Err(why) => {
            is_well = false;
            line(&mut text, format_args!("diskvitalsd: {why}"));
        }
    }
    for target in &config.targets {
        let probed = target.probe().await;
        let (name, kind) = (&target.name, target.type_name());
        match probed {
            Ok(answer) => line(&mut text, format_args!("{name} ({kind}): {answer}")),
            Err(error) => {
                is_well = false;
                line(&mut text, format_args!("{name} ({kind}): cannot work: {error}"));
            }
        }
        for secret in secrets(target) {
            match secret.read().await {
                Ok(_) if secret.is_public() => line(
                    &mut text,
                    format_args!(
                        "{name} ({kind}): everyone may read the secret {}: chmod o-r",
                        secret.path().display()
                    ),
                ),
                Ok(_) => {}
                Err(error) => {
                    is_well = false;
                    let why = diskvitals_text::causes::with_causes(&error);
                    line(&mut text, format_args!("{name} ({kind}): cannot work: {why}"));
                }
            }
        }
        if let Some(server) = clear_text_secret(target) {
            line(
                &mut text,
                format_args!("{name} ({kind}): a secret goes to {server} in clear text: use https"),
            );
        }
    }
    Outcome { text, is_well }
}

fn secrets(target: &Target) -> Vec<&SecretFile> {
    fn of_url(url: &UrlSource) -> Option<&SecretFile> {
        match url {
            UrlSource::Secret(file) => Some(file),
            UrlSource::Known(_) => None,
        }
    }
    match &target.kind {
        TargetKind::Smtp(smtp) => smtp.credentials.iter().map(|(_, file)| file).collect(),
        TargetKind::Webhook(webhook) => {
            let files = webhook.headers.files.iter().map(|(_, file)| file);
            files.chain(&webhook.token).chain(of_url(&webhook.url)).collect()
        }
        TargetKind::Heartbeat(heartbeat) => {
            let files = heartbeat.headers.files.iter().map(|(_, file)| file);
            files.chain(&heartbeat.token).chain(of_url(&heartbeat.url)).collect()
        }
        TargetKind::Exec(_) => Vec::new(),
    }
}

/// The server that gets a token without TLS over the network.
fn clear_text_secret(target: &Target) -> Option<String> {
    let (url, has_secret) = match &target.kind {
        TargetKind::Webhook(webhook) => {
            (&webhook.url, webhook.token.is_some() || !webhook.headers.files.is_empty())
        }
        TargetKind::Heartbeat(heartbeat) => {
            (&heartbeat.url, heartbeat.token.is_some() || !heartbeat.headers.files.is_empty())
        }
        TargetKind::Smtp(_) | TargetKind::Exec(_) => return None,
    };
    match url {
        UrlSource::Known(url) if has_secret && !url.is_tls() => {
            let local = crate::config::target::is_loopback(url.host());
            (!local).then(|| url.server())
        }
        _ => None,
    }
}
