//! Very many transitions, and a full disk under the queue: nothing is lost, and all of it is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::fake_daemon::{BAD_EVERY, FakeDaemon};
use super::server::{Server, Tls, header};
use super::{Scene, json, smtp_target, webhook_target};
use crate::tmpfs::Tmpfs;

const CAUSES: usize = 500;
/// Raised and cleared in turn: 10,000 transitions.
const STEPS: u64 = 20;
/// After ten messages, changes are collected for a minute.
const LIMIT: Duration = Duration::from_secs(240);
/// The limit of the chart's pod, which is the smallest.
const MEMORY_LIMIT_KIB: u64 = 128 << 10;

/// The largest memory of the process so far.
fn peak_memory(scene: &Scene, pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let text = text.unwrap_or_else(|error| panic!("{error}\n{}", scene.log()));
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("its memory")
}

/// All messages, each id once.
fn messages(hook: &Server) -> Vec<Value> {
    let mut ids = BTreeSet::new();
    let requests = hook.accepted();
    let bodies = requests.iter().map(|request| json(request));
    bodies.filter(|body| ids.insert(body["id"].as_str().expect("an id").to_owned())).collect()
}

fn items(body: &Value) -> impl Iterator<Item = (&str, &str)> {
    let items = body["items"].as_array().expect("items");
    items.iter().map(|item| {
        let text = |key: &str| item[key].as_str().expect("a text");
        (text("message"), text("transition"))
    })
}

#[test]
fn ten_thousand_transitions_in_a_minute_arrive_in_few_messages_worst_first_over_a_kill() {
    let (mail, hook) = (Server::smtp(0, Tls::Starttls, "server.pem"), Server::http(true));
    let scene =
        Scene::new(&format!("{}{}", smtp_target(&mail, "starttls"), webhook_target(&hook, "")));
    let begun = Instant::now();
    let daemon = FakeDaemon::start(&scene.path("d.sock"), CAUSES, STEPS);
    let agent = scene.start(&scene.path("d.sock"));
    scene.until_within(LIMIT, "a half of it", || {
        (daemon.step() > STEPS / 2 && !hook.accepted().is_empty()).then_some(())
    });
    let before = peak_memory(&scene, agent.0.id());
    agent.end(Signal::SIGKILL);
    let agent = scene.start(&scene.path("d.sock"));
    scene.until_within(LIMIT, "all steps were read", || (daemon.step() == STEPS).then_some(()));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");

    // One of each pair may be told by the end alone, if the kill came between.
    let ends = |messages: &[Value]| {
        let all = messages.iter().flat_map(items);
        let ends = all.filter(|(_, transition)| *transition == "cleared");
        ends.map(|(message, _)| message.to_owned()).collect::<BTreeSet<_>>().len()
    };
    let pairs = CAUSES * usize::try_from(STEPS / 2).expect("a small number");
    let arrived = scene.until_within(LIMIT, "all ends", || {
        Some(messages(&hook)).filter(|messages| ends(messages) == pairs)
    });
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for item in arrived.iter().flat_map(items) {
        *counts.entry(item).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let raised = counts.len() - pairs;
    // At the kill, a step may have been read and not yet been stored.
    assert!(raised == pairs || raised + CAUSES == pairs, "{raised}");

    // Ten messages at once, then one window a minute; each has a hundred transitions.
    assert!(arrived.len() <= 110, "{}", arrived.len());
    let longest = arrived.iter().map(|body| body.to_string().len()).max();
    assert!(longest < Some(512 << 10), "{longest:?}");
    let mut windows: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for body in &arrived {
        let items = body["items"].as_array().expect("items");
        let bad = items.iter().map(|item| item["severity"] == "bad");
        let time = body["time"].as_str().expect("a time");
        windows.entry(time).or_default().extend(bad);
    }
    for (window, bad) in &windows {
        assert!(bad.is_sorted_by(|a, b| a >= b), "{window}: the worst first");
        let share = bad.iter().filter(|bad| **bad).count() * BAD_EVERY;
        assert_eq!(share, bad.len(), "{window}");
    }

    let ids: BTreeSet<&str> =
        arrived.iter().map(|body| body["id"].as_str().expect("an id")).collect();
    scene.until_within(LIMIT, "as many mails", || {
        let mails = mail.accepted();
        let mails: BTreeSet<&str> =
            mails.iter().map(|mail| header(mail, "X-Diskvitals-Id")).collect();
        (mails == ids).then_some(())
    });
    for memory in [before, peak_memory(&scene, agent.0.id())] {
        println!("{memory} KiB");
        assert!(memory < MEMORY_LIMIT_KIB, "{memory} KiB");
    }
    assert_eq!(agent.end(Signal::SIGTERM).code(), Some(0));
}

#[test]
fn a_full_disk_under_the_queue_loses_no_message_and_is_used_again_when_it_has_room() {
    let Some(tmpfs) = Tmpfs::mount() else { return };
    let queue = tmpfs.path().join("state");
    let (host, _daemon) = super::delivery::broken_host();
    let hook = Server::http(true);
    let waits = "[[target]]\nname = \"waits\"\ntype = \"webhook\"\nurl = \"http://127.0.0.1:1/\"\n";
    let scene = Scene::new(&format!("{}{waits}", webhook_target(&hook, "")));
    let socket = super::delivery::socket(&host);
    let agent = scene.start_with_queue(&socket, &queue);
    scene.until("a request", || hook.accepted().pop());
    let filler = tmpfs.path().join("filler");
    let full = std::fs::write(&filler, vec![0; 2 << 20]);
    assert!(full.is_err(), "the disk is full");

    super::delivery::break_second(&host);
    let about_second = || {
        let requests = hook.accepted();
        requests.iter().any(|request| request.contains("sdb"))
    };
    scene.until("a request without a disk", || about_second().then_some(()));
    let log = scene.log();
    assert!(log.contains("the queue is not on disk") && log.contains("full"), "{log}");

    std::fs::remove_file(&filler).expect("removed");
    scene.until("it is on disk", || {
        scene.log().contains("the queue is on disk again").then_some(())
    });
    agent.end(Signal::SIGKILL);
    let before = hook.accepted().len();
    let agent = scene.start_with_queue(&socket, &queue);
    scene.until("both messages are in the queue of the dead target", || {
        scene.log().contains("waiting=2").then_some(())
    });
    scene.until("the daemon was read again", || {
        (scene.log().matches("diskvitalsd answers").count() == 2).then_some(())
    });
    assert_eq!(agent.end(Signal::SIGTERM).code(), Some(0));
    assert_eq!(hook.accepted().len(), before, "what was delivered is not sent again");
}
