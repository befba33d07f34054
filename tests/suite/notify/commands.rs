//! `test` and `--check-config` against real servers.

use super::server::{Behavior, PASSWORD, Server, Tls, certificate, closed_port, header, mail_text};
use super::{Scene, said, smtp_target, webhook_target};

#[test]
fn a_test_mail_arrives_over_starttls_and_over_tls_and_the_answer_is_printed() {
    for (tls, word) in [(Tls::Starttls, "starttls"), (Tls::Implicit, "tls")] {
        let server = Server::smtp(0, tls, "server.pem");
        let scene = Scene::new(&format!("host = \"node7\"\n{}", smtp_target(&server, word)));
        let (text, status) = said(&scene.output(&["test", "mail"]));
        assert_eq!(status, Some(0), "{text}");
        assert!(text.starts_with("diskvitalsd: "), "{text}");
        assert!(text.ends_with("\nmail: sent: 250 2.0.0 queued as TEST1\n"), "{text}");
        let mails = server.accepted();
        let [mail] = mails.as_slice() else {
            panic!("one mail: {mails:#?}");
        };
        assert_eq!(header(mail, "Subject"), "[test] node7: this is a test of diskvitals-notify");
        assert_eq!(header(mail, "Auto-Submitted"), "auto-generated");
        assert!(header(mail, "Message-ID").ends_with("@node7.example>"), "{mail}");
        let text = mail_text(mail);
        assert!(
            text.contains("diskvitalsd did not answer, so this says nothing about the drives:"),
            "{text}"
        );
    }
}

#[test]
fn clear_text_to_this_host_needs_neither_certificates_nor_a_login() {
    let server = Server::smtp(0, Tls::None, "server.pem");
    let scene = Scene::new(&format!(
        "[[target]]\nname = \"mail\"\ntype = \"smtp\"\nserver = \"{}\"\ntls = \"none\"\nfrom = \"a@b.example\"\nto = [\"ops@example.com\", \"Ops Two <two@example.com>\"]\n",
        server.address
    ));
    let (text, status) = said(&scene.output(&["test"]));
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(server.accepted().len(), 1);
}

#[test]
fn a_relay_without_tls_gets_mail_by_the_word_insecure_alone_and_never_a_password() {
    let server = Server::smtp(0, Tls::None, "server.pem");
    let target = |more: &str| {
        format!(
            "[[target]]\nname = \"mail\"\ntype = \"smtp\"\nserver = \"{}\"\ntls = \"insecure\"\nfrom = \"a@b.example\"\nto = [\"ops@example.com\"]\n{more}",
            server.address
        )
    };
    let scene = Scene::new(&target(""));
    let (text, status) = said(&scene.output(&["test"]));
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(server.accepted().len(), 1);
    let (text, _) = said(&scene.output(&["--check-config"]));
    assert!(text.contains("mail goes there in clear text"), "{text}");
    let scene = Scene::new(&target("username = \"u\"\npassword_file = \"password\"\n"));
    let (text, status) = said(&scene.output(&["test"]));
    assert_eq!(status, Some(2), "{text}");
    assert!(
        text.contains("tls: insecure sends mail in clear text, and no password goes with it"),
        "{text}"
    );
    assert_eq!(server.accepted().len(), 1);
}

#[test]
fn what_keeps_a_mail_from_being_sent_is_said_and_no_secret_is() {
    let works = Server::smtp(0, Tls::Starttls, "server.pem");
    let expired = Server::smtp(0, Tls::Implicit, "expired.pem");
    let plain = Server::smtp(0, Tls::None, "server.pem");
    let refuses = Server::smtp(0, Tls::Starttls, "server.pem");
    refuses.will(&[Behavior::Refuses("550 5.1.1 no such user\u{1b}[31m")]);
    let dies = Server::smtp(0, Tls::Starttls, "server.pem");
    dies.will(&[Behavior::DiesWithinData]);
    let hangs = Server::smtp(0, Tls::Implicit, "server.pem");
    hangs.will(&[Behavior::Hangs]);
    let no_authority = |text: String| {
        let lines = text.lines().filter(|line| !line.starts_with("ca_file"));
        lines.collect::<Vec<_>>().join("\n")
    };
    for (config, expected) in [
        (
            smtp_target(&works, "starttls").replace("\"node7\"", "\"stranger\""),
            "5.7.8 the password is wrong or has expired",
        ),
        (smtp_target(&expired, "tls"), "expired"),
        (no_authority(smtp_target(&works, "starttls")), "UnknownIssuer"),
        (smtp_target(&plain, "starttls"), "does not offer STARTTLS: nothing is sent in clear text"),
        (smtp_target(&plain, "tls"), "cannot be used"),
        (smtp_target(&refuses, "starttls"), "5.1.1 no such user"),
        (smtp_target(&dies, "starttls"), "refuses the mail"),
        (smtp_target(&hangs, "tls").replace("\"5s\"", "\"1s\""), "no answer within"),
        (
            smtp_target(&works, "starttls").replace("\"password\"", "\"absent\""),
            "reading the secret",
        ),
    ] {
        let scene = Scene::new(&config);
        let (text, status) = said(&scene.output(&["test", "mail"]));
        assert!(text.contains("mail: not sent: ") && text.contains(expected), "{expected}: {text}");
        assert_eq!(status, Some(1), "{text}");
        assert!(!text.contains(PASSWORD) && !text.contains('\u{1b}'), "{text}");
    }
    for server in [&works, &expired, &plain, &refuses, &dies] {
        assert_eq!(server.accepted(), Vec::<String>::new());
    }
}

#[test]
fn a_hostile_name_of_the_host_adds_no_header_and_no_line() {
    let server = Server::smtp(0, Tls::Starttls, "server.pem");
    let hook = Server::http(true);
    let host = r"a\r\nBcc: thief@example.com\r\n\r\nbody \u202E \u001B[31m <!channel>";
    let targets = format!(
        "{}{}",
        smtp_target(&server, "starttls"),
        webhook_target(&hook, "preset = \"slack\"")
    );
    let scene = Scene::new(&format!("host = \"{host}\"\n{targets}"));
    let (text, status) = said(&scene.output(&["test"]));
    assert_eq!(status, Some(0), "{text}");
    let mails = server.accepted();
    assert_eq!(header(&mails[0], "Bcc"), "");
    assert_eq!(header(&mails[0], "To"), "ops@example.com");
    assert!(mail_text(&mails[0]).contains(r"a\r\nBcc: thief@example.com"), "{}", mails[0]);
    assert!(!mail_text(&mails[0]).contains(['\u{202e}', '\u{1b}']), "{}", mails[0]);
    let requests = hook.accepted();
    assert!(!requests[0].contains("<!channel>"), "{}", requests[0]);
    assert!(requests[0].contains("&lt;!channel&gt;"), "{}", requests[0]);
}

#[test]
fn every_preset_sends_the_form_that_its_service_reads() {
    let hook = Server::http(true);
    let presets = [
        ("json", "", "POST /hook", "/schema"),
        ("slack", "", "POST /hook", "/blocks/0/text/text"),
        ("teams", "", "POST /hook", "/attachments/0/content/body/1/inlines/0/text"),
        ("discord", "", "POST /hook", "/content"),
        ("ntfy", "token_file = \"password\"", "POST / HTTP", "/topic"),
        ("gotify", "token_file = \"password\"", "POST /hook/message", "/message"),
    ];
    for (at, (preset, more, line, field)) in presets.into_iter().enumerate() {
        let scene = Scene::new(&webhook_target(&hook, &format!("preset = \"{preset}\"\n{more}")));
        let (text, status) = said(&scene.output(&["test", "hook"]));
        assert_eq!(status, Some(0), "{preset}: {text}");
        assert!(text.ends_with("\nhook: sent: HTTP 200 OK received\n"), "{preset}: {text}");
        let requests = hook.accepted();
        let request = &requests[at];
        let (head, body) = request.split_once("\n\n").expect("a head and a body");
        assert!(head.starts_with(line), "{preset}: {head}");
        assert_eq!(header(request, "idempotency-key").len(), 32, "{head}");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let value = body.pointer(field).and_then(serde_json::Value::as_str);
        assert!(value.is_some_and(|value| !value.is_empty()), "{preset}: {body:#}");
        match preset {
            "ntfy" => assert_eq!(header(request, "authorization"), format!("Bearer {PASSWORD}")),
            "gotify" => assert_eq!(header(request, "x-gotify-key"), PASSWORD),
            _ => {}
        }
    }
}

#[test]
fn a_body_and_headers_of_the_configuration_are_sent() {
    let hook = Server::http(true);
    let more = r#"
body = '{"key": "{{id}}", "all": {{json}}}'
headers = { "X-Team" = "storage" }
header_files = { "X-Secret" = "password" }
"#;
    let scene = Scene::new(&webhook_target(&hook, more));
    let (text, status) = said(&scene.output(&["test"]));
    assert_eq!(status, Some(0), "{text}");
    let requests = hook.accepted();
    assert_eq!(header(&requests[0], "x-team"), "storage");
    assert_eq!(header(&requests[0], "x-secret"), PASSWORD);
    let (_, body) = requests[0].split_once("\n\n").expect("a body");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["key"], body["all"]["id"]);
}

#[test]
fn an_answer_that_is_no_success_is_a_failure_with_its_text() {
    let hook = Server::http(true);
    for status in ["302 Found", "403 Forbidden", "422 Unprocessable", "500 Broken", "429 Slow Down"]
    {
        hook.will(&[Behavior::Refuses(status)]);
        let scene = Scene::new(&webhook_target(&hook, ""));
        let (text, code) = said(&scene.output(&["test"]));
        let number = &status[..3];
        assert!(text.contains(&format!("HTTP {number}")) && code == Some(1), "{text}");
        // The path may be a secret.
        assert!(!text.contains("/hook"), "{text}");
    }
}

#[test]
fn a_program_gets_json_or_a_mail_on_its_standard_input() {
    let socket = "socket = \"/no/such/socket\"\n";
    let scene = Scene::new(socket);
    let got = scene.path("got").display().to_string();
    let exec = |more: &str| {
        format!(
            "{socket}[[target]]\nname = \"run\"\ntype = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", \"cat >{got}; echo page 7 sent\"]\n{more}"
        )
    };
    scene.configure(&exec(""));
    let (text, status) = said(&scene.output(&["test"]));
    assert!(
        text.starts_with("diskvitalsd: no diskvitalsd at /no/such/socket")
            && text.ends_with("\nrun: sent: exit 0 page 7 sent\n"),
        "{text}"
    );
    assert_eq!(status, Some(0));
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&got).expect("written")).expect("JSON");
    assert_eq!(json["schema"], "diskvitals.notification/v1");
    scene.configure(&exec("input = \"mail\"\nfrom = \"a@b.example\"\nto = [\"ops@example.com\"]"));
    assert_eq!(said(&scene.output(&["test"])).1, Some(0));
    let mail = std::fs::read_to_string(&got).expect("written");
    assert_eq!(header(&mail, "To"), "ops@example.com");
    assert!(!mail.contains('\r'), "{mail}");
}

#[test]
fn the_check_of_a_configuration_finds_what_cannot_work_and_sends_nothing() {
    let works = Server::smtp(0, Tls::Starttls, "server.pem");
    let expired = Server::smtp(0, Tls::Implicit, "expired.pem");
    let hook = Server::http(true);
    let named = |text: String, name: &str| {
        text.replacen("\"mail\"", &format!("\"{name}\""), 1).replacen(
            "\"hook\"",
            &format!("\"{name}\""),
            1,
        )
    };
    let config = [
        named(smtp_target(&works, "starttls"), "good"),
        named(smtp_target(&expired, "tls"), "expired"),
        named(webhook_target(&hook, ""), "hook"),
        named(webhook_target(&hook, "token_file = \"absent\""), "nosecret"),
        format!("[[target]]\nname = \"closed\"\ntype = \"heartbeat\"\nurl = \"http://127.0.0.1:{}/\"\n", closed_port()),
        "[[target]]\nname = \"program\"\ntype = \"exec\"\ncommand = [\"/no/such/program\"]\n".to_owned(),
        format!("[[target]]\nname = \"authority\"\ntype = \"webhook\"\nurl = \"https://localhost:1/\"\nca_file = \"{}\"\n", certificate("make").display()),
    ]
    .join("\n");
    let scene = Scene::new(&format!("socket = \"/no/such/socket\"\n{config}"));
    let (text, status) = said(&scene.output(&["--check-config"]));
    for expected in [
        "diskvitalsd: no diskvitalsd at /no/such/socket",
        &format!(
            "good (smtp): localhost:{} accepts connections and the login",
            works.address.port()
        ),
        "expired (smtp): cannot work:",
        "hook (webhook): https://localhost:",
        "nosecret (webhook): cannot work: reading the secret",
        "closed (heartbeat): cannot work: connecting to http://127.0.0.1:",
        "program (exec): cannot work: /no/such/program",
        "good (smtp): everyone may read the secret",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert_eq!(status, Some(1));
    assert!(!text.contains(PASSWORD), "{text}");
    assert_eq!(works.accepted(), Vec::<String>::new());
    assert_eq!(hook.received(), Vec::<String>::new());
    scene.configure("tragets = 1");
    let (text, status) = said(&scene.output(&["--check-config"]));
    assert!(text.contains("unknown field `tragets`"), "{text}");
    assert_eq!(status, Some(2));
}

#[test]
fn an_unknown_target_is_wrong_usage_that_lists_the_known_ones() {
    let hook = Server::http(true);
    let scene = Scene::new(&webhook_target(&hook, ""));
    let (text, status) = said(&scene.output(&["test", "mail"]));
    assert!(text.contains("no such target") && text.contains("hook"), "{text}");
    assert_eq!(status, Some(2));
}
