use super::*;
use crate::targets::TargetKind;

fn parse_text(text: &str) -> Result<Config, String> {
    parse(Path::new("/etc/diskvitals/notify.toml"), text).map_err(|error| error.to_string())
}

const MAIL: &str = r#"
[[target]]
name = "mail"
type = "smtp"
server = "127.0.0.1:2525"
tls = "none"
from = "diskvitals@node7.example"
to = ["ops@example.com"]
"#;

#[test]
fn a_few_lines_are_enough_for_mail() {
    let config = parse_text(MAIL).expect("right");
    let [target] = config.targets.as_slice() else {
        panic!("one target: {config:?}");
    };
    let TargetKind::Smtp(smtp) = &target.kind else {
        panic!("mail: {target:?}");
    };
    assert_eq!((smtp.host.as_str(), smtp.port), ("127.0.0.1", 2525));
    assert_eq!(config.planner.group_wait, SignedDuration::from_secs(3));
}

#[test]
fn the_commented_example_is_accepted_once_its_comments_are_removed() {
    let text = include_str!("../../../systemd/notify.toml");
    let settings: Vec<&str> =
        text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect();
    let config = parse_text(&settings.join("\n")).expect("right");
    let types: Vec<&str> = config.targets.iter().map(Target::type_name).collect();
    for kind in ["smtp", "webhook", "exec", "heartbeat"] {
        assert!(types.contains(&kind), "{types:?}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_the_targets_name_and_the_key() {
    let at = "/etc/diskvitals/notify.toml: ";
    for (change, expected) in [
        (
            ("127.0.0.1:2525", "mail.example.com"),
            "target \"mail\": tls: none sends mail in clear text",
        ),
        (
            ("tls = \"none\"", "tls = \"maybe\""),
            "target \"mail\": tls: `maybe` is none: write starttls, tls, none or insecure",
        ),
        (("type = \"smtp\"", "type = \"pager\""), "target \"mail\": type: `pager` is none"),
        (
            ("ops@example.com", "ops"),
            "target \"mail\": to: `ops` is no mail address (Invalid input): write NAME@HOST",
        ),
        (("[\"ops@example.com\"]", "[]"), "target \"mail\": to: type smtp needs it"),
        (("name = \"mail\"", "name = \"a b\""), "name: 1 to 64 letters"),
        (
            ("tls =", "username = \"x\"\ntls ="),
            "target \"mail\": password_file: type smtp with username needs it",
        ),
        (("tls =", "url = \"x\"\ntls ="), "target \"mail\": url: type smtp has no such key"),
        (("tls =", "tsl ="), "unknown field `tsl`"),
        (("[[target]]", "digest = \"hourly\"\n[[target]]"), "digest: `hourly` is no schedule"),
        (("[[target]]", "quiet_hours = \"night\"\n[[target]]"), "quiet_hours: `night` is no span"),
        (
            ("[[target]]", "quiet_hours_pass = \"all\"\n[[target]]"),
            "quiet_hours_pass: `all` is none: write first",
        ),
        (("[[target]]", "repeat = \"2w\"\n[[target]]"), "repeat_max: it is shorter than repeat"),
    ] {
        let text = MAIL.replace(change.0, change.1);
        let error = parse_text(&text).expect_err(change.1);
        assert!(error.starts_with(at) && error.contains(expected), "{error}");
    }
    assert!(parse_text("").expect_err("nothing").contains("there is no [[target]]"));
    let twice = format!("{MAIL}{MAIL}");
    assert!(parse_text(&twice).expect_err("twice").contains("another target has this name"));
}

#[test]
fn webhooks_are_checked_when_the_file_is_read() {
    let hook = |lines: &str| {
        let text = format!("[[target]]\nname = \"hook\"\ntype = \"webhook\"\n{lines}");
        parse_text(&text).map(|_| ())
    };
    assert_eq!(hook("url = \"https://hooks.example/x\"\npreset = \"slack\""), Ok(()));
    for (lines, expected) in [
        ("url = \"ftp://x\"", "url: no address of a web server"),
        ("url = \"https://u:p@x/\"", "belong into header_files"),
        ("preset = \"slack\"", "url: type webhook needs it"),
        ("url = \"https://x/\"\npreset = \"irc\"", "preset: `irc` is none"),
        (
            "url = \"https://x/\"\nbody = '{\"a\": \"{{titel}}\"}'",
            "body: `{{titel}}` is no placeholder; known are id,",
        ),
        ("url = \"https://x/\"\nbody = '{\"a\": {{title}}}'", "body: it is not JSON"),
        (
            "url = \"https://x/\"\nheaders = {\"a b\" = \"c\"}",
            "headers: `a b` is no name of a header",
        ),
        (
            "url = \"https://x/\"\nheaders = {\"a\" = \"c\\nd\"}",
            "headers: the value of a has characters",
        ),
        (
            "url = \"https://x/\"\npreset = \"gotify\"",
            "token_file: type webhook with preset gotify needs it",
        ),
    ] {
        let error = hook(lines).expect_err(lines);
        assert!(error.contains(expected), "{error}");
    }
    // The path of an address may be a secret: no message repeats it.
    let error = hook("url = \"https://x/ SECRET\"").expect_err("refused");
    assert!(!error.contains("SECRET") || error.contains("TOML"), "{error}");
}
