//! `ZpoolReader` with a program in place of `zpool`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

const TEXT: &str = "  pool: $name
 state: ONLINE
config:

\tNAME        STATE     READ WRITE CKSUM
\t$name       ONLINE       0     0     0
\t  /dev/sda  ONLINE       0     0     0

errors: No known data errors
";

/// A directory with `zpool`, which writes its arguments to `started`.
struct Lab {
    dir: TempDir,
    reader: ZpoolReader,
}

impl Lab {
    fn new(script: &str) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("zpool");
        let text = dir.path().join("text");
        fs::write(&text, TEXT).unwrap();
        let script = format!(
            "#!/bin/sh\nfor name; do :; done\necho \"$*\" >> {}/started\nanswer() {{ sed \"s/\\$name/$name/\" {}; }}\n{script}\n",
            dir.path().display(),
            text.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let timeout = Duration::from_secs(1);
        let reader = ZpoolReader { programs: vec![program], timeout, ..ZpoolReader::new() };
        Lab { dir, reader }
    }

    async fn ask(&self, pool: &str) -> ZfsPool {
        self.reader.complete(&HostRoot::new("/"), pool, PoolState::Online).await
    }

    fn started(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("started")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The programs run in real time.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const OLD: &str = "[ \"$2\" = -j ] && exit 2\nanswer";

#[tokio::test]
async fn a_zpool_without_json_is_asked_for_text_from_the_next_round_on() {
    let lab = Lab::new(OLD);
    assert_eq!(lab.ask("tank").await.status, None);
    assert!(lab.ask("tank").await.status.is_some());
    pass(INTERVAL).await;
    lab.ask("tank").await;
    let started = lab.started();
    let has_json: Vec<bool> = started.iter().map(|it| it.contains(" -j ")).collect();
    assert_eq!(has_json, [true, false, false], "{started:?}");
}

#[tokio::test]
async fn a_name_with_blanks_and_unicode_is_one_argument_and_the_answer_is_not_localized() {
    let lab = Lab::new("[ \"$2\" = -j ] && exit 2\n[ \"$LANG\" = C.UTF-8 ] && answer");
    for _ in 0..2 {
        lab.ask("größe 2").await;
    }
    assert!(lab.ask("größe 2").await.status.is_some());
    assert!(lab.started()[1].ends_with("-s größe 2"));
}

#[tokio::test]
async fn one_that_hangs_is_killed_and_none_starts_for_an_hour() {
    let lab = Lab::new("exec sleep 60");
    let pool = lab.ask("tank").await;
    assert!(pool.status_error.unwrap().contains("was killed"));
    for _ in 0..3 {
        pass(INTERVAL).await;
        lab.reader.make_due();
        lab.ask("tank").await;
        lab.ask("other").await;
    }
    assert_eq!(lab.started().len(), 1);
    pass(AFTER_HANG).await;
    lab.ask("tank").await;
    assert_eq!(lab.started().len(), 2);
}

#[tokio::test]
async fn a_pool_that_is_imported_or_suspended_holds_back_zpool_for_the_others() {
    let lab = Lab::new(OLD);
    lab.reader.hold("arriving");
    lab.ask("tank").await;
    assert_eq!(lab.started().len(), 0);
    // It has arrived.
    lab.ask("arriving").await;
    lab.ask("tank").await;
    assert_eq!(lab.started().len(), 2);
    lab.reader.complete(&HostRoot::new("/"), "arriving", PoolState::Suspended).await;
    pass(INTERVAL / 3).await;
    lab.reader.make_due();
    lab.ask("tank").await;
    assert_eq!(lab.started().len(), 2);
    // It is gone: neither its state nor a failed attempt to read it is new.
    lab.reader.hold("arriving");
    pass(STATE_IS_OLD).await;
    lab.ask("tank").await;
    assert_eq!(lab.started().len(), 3);
}

#[tokio::test]
async fn a_request_by_hand_makes_it_due_once_half_a_minute_has_passed() {
    let lab = Lab::new("answer >&2; exit 1");
    for seconds in [0, 29, 2, 1] {
        pass(Duration::from_secs(seconds)).await;
        lab.reader.make_due();
        lab.ask("tank").await;
    }
    assert_eq!(lab.started().len(), 2);
    // The last request came too early, and is put off.
    for (seconds, started) in [(28, 2), (1, 3), (60, 3)] {
        pass(Duration::from_secs(seconds)).await;
        lab.ask("tank").await;
        assert_eq!(lab.started().len(), started);
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_of_another_pool_is_none() {
    for (script, why) in [
        ("head -c 9000000 /dev/zero | tr '\\0' x", "zpool status"),
        ("echo '{\"pools\":{}}'", "has no pool tank"),
        ("echo '{\"pools\":'", "is no JSON"),
        ("echo oops >&2; exit 1", "oops"),
    ] {
        let lab = Lab::new(script);
        let pool = lab.ask("tank").await;
        let error = pool.status_error.unwrap();
        assert!(pool.status.is_none() && error.contains(why), "{script}: {error}");
    }
}

#[test]
fn two_hundred_members_are_read_in_both_forms() {
    let name = |n: usize| format!("/dev/disk/by-id/wwn-0x5000c500a1b2{n:04x}-part1");
    let json = |n| {
        let name = name(n);
        format!(
            r#""{name}":{{"name":"{name}","vdev_type":"disk","guid":{n},"state":"ONLINE","read_errors":0,"write_errors":0,"checksum_errors":0}}"#
        )
    };
    let all: Vec<String> = (0..200).map(json).collect();
    let answer = format!(
        r#"{{"pools":{{"tank":{{"name":"tank","error_count":0,"vdevs":{{"tank":{{"vdevs":{{{}}}}}}}}}}}}}"#,
        all.join(",")
    );
    let rows: Vec<String> = (0..200).map(|n| format!("\t  {}  ONLINE 0 0 0 0", name(n))).collect();
    let text = format!(
        "  pool: tank\nconfig:\n\n\tNAME STATE READ WRITE CKSUM SLOW\n\ttank ONLINE 0 0 0 -\n{}\n\nerrors: No known data errors\n",
        rows.join("\n")
    );
    for (bytes, form) in [(answer, Form::Json), (text, Form::Text)] {
        assert_eq!(parse(bytes.as_bytes(), form, "tank").unwrap().vdevs.len(), 200);
    }
}
