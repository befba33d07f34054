//! From a finding of a real daemon to a message at a server: once, in time, and over crashes.

use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::server::{Behavior, PASSWORD, Server, Tls, closed_port, header, mail_text};
use super::{Scene, json, smtp_target, webhook_target};
use crate::smart::host::{Daemon, Host, OFTEN, sata};
use crate::smartctl::Ata;

pub(super) fn socket(host: &Host) -> PathBuf {
    host.root().with_file_name("d.sock")
}

fn break_drive(host: &Host) {
    let failing = Ata { passed: false, ..sata() };
    host.smartctl.set_response("/dev/sda", &failing.response()).expect("written");
}

pub(super) fn broken_host() -> (Host, Daemon) {
    let host = Host::new(OFTEN);
    break_drive(&host);
    let daemon = host.started();
    daemon.until("it fails", |daemon| daemon.finding("sda", "SmartFailing"));
    (host, daemon)
}

/// Requests about transitions of `name`.
fn transitions(server: &Server, name: &str) -> Vec<serde_json::Value> {
    let requests = server.accepted();
    let items = requests
        .iter()
        .map(|request| json(request))
        .flat_map(|body| body["items"].as_array().cloned().unwrap_or_default());
    items.filter(|item| item["name"] == name).collect()
}

#[test]
fn a_failing_drive_is_one_mail_and_one_request_within_ten_seconds_and_its_end_is_another() {
    let host = Host::new(OFTEN);
    let daemon = host.started();
    let (mail, hook) = (Server::smtp(0, Tls::Starttls, "server.pem"), Server::http(true));
    let scene =
        Scene::new(&format!("{}{}", smtp_target(&mail, "starttls"), webhook_target(&hook, "")));
    let agent = scene.start(&socket(&host));
    scene.until("it runs", || scene.log().contains("diskvitals-notify runs").then_some(()));
    break_drive(&host);
    let finding = daemon.until("it fails", |daemon| daemon.finding("sda", "SmartFailing"));
    let found = std::time::Instant::now();
    let about = |server: &Server, word: &str| {
        let received = server.accepted();
        received.into_iter().find(|message| message.contains(word))
    };
    let text = scene.until("a mail", || about(&mail, "SmartFailing"));
    let request = scene.until("a request", || about(&hook, "SmartFailing"));
    assert!(found.elapsed().as_secs() < 10, "{:?}", found.elapsed());
    let body = json(&request);
    let item = body["items"].as_array().expect("items").iter().find(|item| item["name"] == "sda");
    let item = item.expect("the drive");
    assert_eq!((&item["transition"], &item["severity"]), (&"raised".into(), &"bad".into()));
    assert!(!item["hits"].as_array().expect("hits").is_empty(), "{item:#}");
    assert!(!item["evidence"].as_array().expect("evidence").is_empty(), "{item:#}");
    assert_eq!(header(&text, "X-Diskvitals-Id"), body["id"].as_str().expect("an id"));
    for part in ["sda", "ZL200000", "SmartFailing", "to do", "diskvitals explain"] {
        assert!(mail_text(&text).contains(part), "{part}: {}", mail_text(&text));
    }

    let id = finding["id"].as_str().expect("an id").to_owned();
    daemon.ask(&["ack", &id, "--note", "ordered"]).expect("acknowledged");
    host.smartctl.set_response("/dev/sda", &sata().response()).expect("written");
    scene.until("the end", || {
        transitions(&hook, "sda").iter().any(|item| item["transition"] == "cleared").then_some(())
    });
    let raised: Vec<_> = transitions(&hook, "sda")
        .into_iter()
        .filter(|item| item["transition"] == "raised")
        .collect();
    assert_eq!(raised.len(), 1, "{raised:#?}");
    // The recovery is in the thread of the raise, and of normal importance.
    let over = scene.until("the mail of the end", || {
        let mut mails = mail.accepted().into_iter();
        mails.rfind(|mail| header(mail, "Subject").starts_with("[cleared]"))
    });
    assert_eq!(header(&text, "Importance"), "high");
    assert_eq!(header(&over, "Importance"), "normal");
    assert_eq!(header(&over, "In-Reply-To"), header(&text, "Message-ID"));
    assert_eq!(header(&over, "References"), header(&text, "Message-ID"));
    // A test message says what the daemon reports.
    let socket = socket(&host);
    let socket = socket.to_str().expect("a path");
    let (said_by, status) = super::said(&scene.output(&["--socket", socket, "test", "mail"]));
    assert_eq!(status, Some(0), "{said_by}");
    let test = mail.accepted().pop().expect("a mail");
    assert!(mail_text(&test).contains("diskvitalsd answers."), "{test}");
    assert!(mail_text(&test).contains("drives"), "{test}");
    assert_eq!(agent.end(Signal::SIGTERM).code(), Some(0));
}

#[test]
fn a_kill_within_the_delivery_sends_the_mail_again_under_the_same_id() {
    let (host, _daemon) = broken_host();
    let mail = Server::smtp(0, Tls::Starttls, "server.pem");
    mail.will(&[Behavior::DiesWithinData]);
    let scene = Scene::new(&smtp_target(&mail, "starttls"));
    let agent = scene.start(&socket(&host));
    let cut = scene.until("a mail in transit", || mail.received().pop());
    agent.end(Signal::SIGKILL);
    let agent = scene.start(&socket(&host));
    let whole = scene.until("the mail", || mail.accepted().pop());
    assert_eq!(header(&cut, "Message-ID"), header(&whole, "Message-ID"));
    // A restart without anything new sends nothing.
    agent.end(Signal::SIGKILL);
    let before = mail.accepted().len();
    let agent = scene.start(&socket(&host));
    scene.until("it runs again", || {
        (scene.log().matches("diskvitals-notify runs").count() == 3).then_some(())
    });
    let hook = Server::http(true);
    scene.configure(&format!(
        "digest = \"off\"\n{}{}",
        smtp_target(&mail, "starttls"),
        webhook_target(&hook, "")
    ));
    scene
        .until("reloaded", || scene.log().contains("the configuration was reloaded").then_some(()));
    break_second(&host);
    scene.until("the other drive", || {
        hook.accepted().iter().any(|request| request.contains("sdb")).then_some(())
    });
    scene.until("its mail", || (mail.accepted().len() > before).then_some(()));
    assert!(transitions(&hook, "sda").is_empty(), "what was announced is not announced again");
    assert_eq!(agent.end(Signal::SIGTERM).code(), Some(0));
}

pub(super) fn break_second(host: &Host) {
    let failing =
        crate::smartctl::Scsi { exception: Some((0x5d, 0x10)), ..crate::smart::host::sas() };
    host.smartctl.set_response("/dev/sdb", &failing.response()).expect("written");
}

#[test]
fn a_target_that_hangs_delays_no_other_and_gets_its_message_later() {
    let (host, _daemon) = broken_host();
    let mail = Server::smtp(0, Tls::Implicit, "server.pem");
    mail.will(&[Behavior::Hangs]);
    let hook = Server::http(true);
    let scene = Scene::new(&format!("{}{}", smtp_target(&mail, "tls"), webhook_target(&hook, "")));
    let _agent = scene.start(&socket(&host));
    scene.until("a request", || hook.accepted().pop());
    assert_eq!(mail.accepted(), Vec::<String>::new());
    let text = scene.until("the mail", || mail.accepted().pop());
    assert_eq!(
        header(&text, "X-Diskvitals-Id"),
        json(&hook.accepted()[0])["id"].as_str().expect("an id")
    );
    assert!(
        scene.log().contains("the target cannot be used; its messages wait"),
        "{}",
        scene.log()
    );
}

#[test]
fn messages_wait_over_a_downtime_of_the_server_and_of_the_process() {
    let (host, _daemon) = broken_host();
    let port = closed_port();
    let absent = Server::http(true);
    let hook = absent.address.port();
    let target = webhook_target(&absent, "").replace(&hook.to_string(), &port.to_string());
    let mail = format!(
        "[[target]]\nname = \"mail\"\ntype = \"smtp\"\nserver = \"127.0.0.1:{port}\"\ntls = \"none\"\nfrom = \"a@b.example\"\nto = [\"ops@example.com\"]\n"
    );
    let scene = Scene::new(&format!("{mail}{target}"));
    let agent = scene.start(&socket(&host));
    scene.until("both wait", || {
        (scene.log().matches("its messages wait").count() >= 2).then_some(())
    });
    assert_eq!(agent.end(Signal::SIGTERM).code(), Some(0));
    let _agent = scene.start(&socket(&host));
    scene.until("it waits", || scene.log().contains("waiting=2").then_some(()));
    let server = Server::smtp(port, Tls::None, "server.pem");
    let text = scene.until("the mail", || server.accepted().pop());
    assert!(mail_text(&text).contains("SmartFailing"), "{text}");
}

#[test]
fn a_secret_is_read_again_when_it_changes() {
    let (host, _daemon) = broken_host();
    let mail = Server::smtp(0, Tls::Starttls, "server.pem");
    let scene = Scene::new(&smtp_target(&mail, "starttls"));
    scene.write("password", "outdated");
    let _agent = scene.start(&socket(&host));
    scene.until("it is refused", || scene.log().contains("has expired").then_some(()));
    scene.write("password", PASSWORD);
    scene.until("the mail", || mail.accepted().pop());
    assert!(
        !scene.log().contains(PASSWORD) && !scene.log().contains("outdated"),
        "{}",
        scene.log()
    );
}

#[test]
fn a_webhook_with_an_expired_token_gets_its_message_when_the_file_has_a_new_one() {
    let (host, _daemon) = broken_host();
    let hook = Server::http(true);
    hook.will(&[Behavior::Refuses("401 Unauthorized")]);
    let scene = Scene::new(&webhook_target(&hook, "token_file = \"token\""));
    scene.write("token", "outdated");
    let _agent = scene.start(&socket(&host));
    scene.until("it is refused", || scene.log().contains("HTTP 401").then_some(()));
    scene.write("token", PASSWORD);
    let request = scene.until("a request", || hook.accepted().pop());
    assert_eq!(header(&request, "authorization"), format!("Bearer {PASSWORD}"));
    // The same message, not another one.
    let refused = &hook.received()[0];
    assert_eq!(header(refused, "idempotency-key"), header(&request, "idempotency-key"));
    assert!(!scene.log().contains("outdated"), "{}", scene.log());
}

#[test]
fn without_a_disk_for_the_queue_messages_are_sent_from_memory_and_the_log_says_so() {
    let (host, _daemon) = broken_host();
    let hook = Server::http(true);
    let scene = Scene::new(&webhook_target(&hook, ""));
    scene.write("state", "a file where the folder should be");
    let _agent = scene.start(&socket(&host));
    scene.until("a request", || hook.accepted().pop());
    assert!(scene.log().contains("the queue is not on disk"), "{}", scene.log());
    std::fs::remove_file(scene.path("state")).expect("removed");
    scene.until("it is on disk", || {
        scene.log().contains("the queue is on disk again").then_some(())
    });
}

#[test]
fn a_silent_daemon_stops_the_heartbeat_and_is_announced() {
    let (host, daemon) = broken_host();
    let (hook, beat) = (Server::http(true), Server::http(false));
    let heartbeat = format!(
        "[[target]]\nname = \"alive\"\ntype = \"heartbeat\"\nurl = \"http://{}/ping\"\ninterval = \"1s\"\n",
        beat.address
    );
    let scene =
        Scene::new(&format!("daemon_silent = \"10s\"\n{heartbeat}{}", webhook_target(&hook, "")));
    let _agent = scene.start(&socket(&host));
    scene.until("heartbeats", || (beat.accepted().len() >= 3).then_some(()));
    daemon.kill();
    let message = scene.until("the announcement", || {
        let requests = hook.accepted();
        requests.iter().map(|request| json(request)).find(|body| body["kind"] == "daemonSilent")
    });
    assert_eq!(message["severity"], "unknown");
    let stopped = beat.accepted().len();
    let _daemon = host.start();
    scene.until("its return", || {
        hook.accepted().iter().any(|request| json(request)["kind"] == "daemonBack").then_some(())
    });
    scene.until("heartbeats again", || (beat.accepted().len() > stopped).then_some(()));
    assert!(stopped < 30, "none for ten seconds of silence: {stopped}");
}

#[test]
fn a_wrong_configuration_is_refused_while_it_runs_and_the_old_one_stays() {
    let (host, _daemon) = broken_host();
    let hook = Server::http(true);
    let config = webhook_target(&hook, "");
    let scene = Scene::new(&config);
    let agent = scene.start(&socket(&host));
    scene.until("a request", || hook.accepted().pop());
    scene.configure(&config.replace("https://", "gopher://"));
    scene.until("refused", || scene.log().contains("the configuration is refused").then_some(()));
    break_second(&host);
    scene.until("the next", || {
        hook.accepted().iter().any(|request| request.contains("sdb")).then_some(())
    });
    let begin = std::time::Instant::now();
    assert_eq!(agent.end(Signal::SIGTERM).code(), Some(0));
    assert!(begin.elapsed().as_secs() < 5);
}
