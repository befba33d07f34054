//! The command line as a process: what it prints, and its exit codes.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diskvitals_finding::Health;
use diskvitals_finding::ids::VolumeId;
use diskvitals_finding::path::HostPath;
use diskvitals_model::snapshot::{MountPoint, NodeContext, NodeState};

use super::fixture::{Served, snapshot};

use crate::programs::built_program;

#[allow(clippy::disallowed_methods)] // The very program that is tested.
async fn diskvitals(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(built_program("diskvitals"));
    command.args(arguments).env("DISKVITALS_SOCKET", socket).stdin(std::process::Stdio::null());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs as the user `nobody`. The folder and the socket get open permissions first, so that only
/// the daemon's own rules apply.
#[allow(clippy::disallowed_methods)] // As above.
async fn as_nobody(socket: &Path, arguments: &[&str]) -> Output {
    use std::os::unix::process::CommandExt;
    // The build directory may not be accessible to the user `nobody`.
    let program = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    std::fs::copy(built_program("diskvitals"), program.path().join("diskvitals")).unwrap();
    let mut command = std::process::Command::new(program.path().join("diskvitals"));
    command.args(arguments).env("DISKVITALS_SOCKET", socket).uid(NOBODY).gid(NOBODY);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

const NOBODY: u32 = 65534;

#[tokio::test]
async fn a_user_other_than_root_may_read_and_not_change() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let served = Served::start(snapshot(0)).await;
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    open(served.dir.path(), 0o755);
    let refused = as_nobody(&served.socket(), &["drives"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("member of the group `diskvitals`"),
        "{}",
        text(&refused.stderr)
    );
    open(&served.socket(), 0o666);
    assert!(as_nobody(&served.socket(), &["drives"]).await.status.success());
    let refused = as_nobody(&served.socket(), &["ack", "0123456789ab", "--note", "x"]).await;
    assert_eq!(
        (refused.status.code(), text(&refused.stderr).as_str()),
        (Some(1), "diskvitals: uid 65534 may not acknowledge findings\n")
    );
    let refused = as_nobody(&served.socket(), &["locate", "sda", "on"]).await;
    assert_eq!(text(&refused.stderr), "diskvitals: uid 65534 may not switch locate lamps\n");
    let refused = as_nobody(&served.socket(), &["maintenance", "node", "1h", "--note", "x"]).await;
    assert_eq!(
        text(&refused.stderr),
        "diskvitals: uid 65534 may not put things under maintenance\n"
    );
    // On the agent socket anyone may connect, the configured users may call, and the configuration
    // may change.
    let refused = as_nobody(&served.agent_socket(), &["drives"]).await;
    assert_eq!(text(&refused.stderr), "diskvitals: uid 65534 may not call on the agent's socket\n");
    served.allow(NOBODY);
    assert!(as_nobody(&served.agent_socket(), &["drives"]).await.status.success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Forwards connections to `to`, but closes the first `broken` ones after their first bytes.
/// Returns the count of connections.
fn breaking(socket: &Path, to: &Path, broken: usize) -> Arc<AtomicUsize> {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    let (to, came) = (to.to_owned(), Arc::new(AtomicUsize::new(0)));
    let count = came.clone();
    tokio::spawn(async move {
        loop {
            let (mut here, _) = listener.accept().await.unwrap();
            if count.fetch_add(1, Ordering::SeqCst) < broken {
                here.readable().await.unwrap();
                continue;
            }
            let mut there = tokio::net::UnixStream::connect(&to).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut here, &mut there).await });
        }
    });
    came
}

#[tokio::test]
async fn read_only_calls_are_retried_after_a_broken_connection_and_others_are_not() {
    let served = Served::start(snapshot(0)).await;
    for (number, (arguments, broken, comes, good)) in [
        (["findings"].as_slice(), 1, 2, true),
        (&["findings"], 2, 2, false),
        (&["ack", "0123456789ab", "--note", "x"], 1, 1, false),
    ]
    .into_iter()
    .enumerate()
    {
        let socket = served.dir.path().join(format!("breaking-{number}"));
        let came = breaking(&socket, &served.socket(), broken);
        let done = diskvitals(&socket, arguments).await;
        assert_eq!(
            (done.status.success(), came.load(Ordering::SeqCst)),
            (good, comes),
            "{arguments:?} {}",
            text(&done.stderr)
        );
        let told = text(&done.stderr);
        assert!(
            good || (told.contains(" broke the connection off: ") && told.lines().count() == 1),
            "{told}"
        );
    }
}

#[tokio::test]
async fn commands_without_a_daemon_print_one_line_and_offline_commands_work() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("none.sock");
    let status = diskvitals(&socket, &["status"]).await;
    assert_eq!(status.status.code(), Some(1));
    let told = text(&status.stderr);
    assert!(told.contains("no diskvitalsd at") && told.lines().count() == 1, "{told}");
    assert_eq!(diskvitals(&socket, &["status", "--exit-code"]).await.status.code(), Some(3));
    assert_eq!(diskvitals(&socket, &["nonsense"]).await.status.code(), Some(2));
    assert_eq!(
        diskvitals(&socket, &["status", "--exit-code", "--nonsense"]).await.status.code(),
        Some(3)
    );
    let reasons = diskvitals(&socket, &["reasons"]).await;
    assert!(reasons.status.success());
    assert!(
        text(&reasons.stdout)
            .lines()
            .any(|line| line.starts_with("StagingNotMounted ") && line.contains("SUSPECT, BAD"))
    );
    assert!(
        text(&diskvitals(&socket, &["completions", "bash"]).await.stdout).contains("_diskvitals")
    );
    let man = dir.path().join("man");
    assert!(diskvitals(&socket, &["man", man.to_str().unwrap()]).await.status.success());
    assert!(man.join("diskvitals.1").exists() && man.join("diskvitals-explain.1").exists());
    assert!(text(&diskvitals(&socket, &["version"]).await.stdout).starts_with("diskvitals 0."));
}

#[tokio::test]
async fn a_single_reason_is_printed_with_and_without_a_daemon() {
    let served = Served::start(snapshot(0)).await;
    let nobody = served.dir.path().join("none.sock");
    for socket in [&served.socket(), &nobody] {
        let told = diskvitals(socket, &["reasons", "pendingsectors"]).await;
        let shown = text(&told.stdout);
        assert!(
            told.status.success() && shown.starts_with("PendingSectors (drive; SUSPECT, BAD)\n"),
            "{shown}"
        );
        assert!(
            ["    The data: ", "    To do: ", "    It is over when "]
                .iter()
                .all(|part| shown.contains(part)),
            "{shown}"
        );
        assert!(!shown.contains("SpareLow"), "{shown}");
        let json = diskvitals(socket, &["reasons", "PendingSectors", "-o", "json"]).await;
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(
            (&json["name"], &json["levels"]),
            (&"PendingSectors".into(), &serde_json::json!(["SEVERITY_SUSPECT", "SEVERITY_BAD"]))
        );
        assert!(
            json["data"].as_str().is_some_and(|text| !text.is_empty())
                && json["clearsWhen"].is_string(),
            "{json}"
        );
        let unknown = diskvitals(socket, &["reasons", "Nonsense"]).await;
        assert_eq!(unknown.status.code(), Some(2));
        assert_eq!(
            text(&unknown.stderr),
            "diskvitals: `Nonsense` is not a reason: `diskvitals reasons` lists them\n"
        );
        assert!(unknown.stdout.is_empty());
    }
    // The names are completed but not listed in the help, where 36 names would hide the rest.
    assert!(
        text(&diskvitals(&nobody, &["completions", "bash"]).await.stdout).contains("ThinPoolFull")
    );
    assert!(
        !text(&diskvitals(&nobody, &["reasons", "--help"]).await.stdout).contains("ThinPoolFull")
    );
}

#[tokio::test]
async fn exit_codes_are_those_of_a_monitoring_plugin() {
    for (has_finding, health, code) in [
        (true, Some(Health::Good), 2),
        (true, Some(Health::Bad), 2),
        (true, None, 2),
        (false, Some(Health::Good), 0),
        (false, Some(Health::Suspect), 1),
        (false, None, 3),
    ] {
        // The snapshot has a bad finding.
        let mut snapshot = snapshot(0);
        if !has_finding {
            snapshot.findings.clear();
        }
        snapshot.node = Arc::new(NodeState { health, ..NodeState::default() });
        let served = Served::start(snapshot).await;
        let ended = diskvitals(&served.socket(), &["status", "--exit-code"]).await;
        assert_eq!(ended.status.code(), Some(code));
    }
}

#[tokio::test]
async fn json_output_is_the_whole_answer_and_errors_are_the_daemons() {
    let served = Served::start(snapshot(1500)).await;
    let volumes = diskvitals(&served.socket(), &["volumes", "-o", "json"]).await;
    let volumes: serde_json::Value = serde_json::from_slice(&volumes.stdout).unwrap();
    assert_eq!(volumes["volumes"].as_array().unwrap().len(), 1502);
    assert_eq!(
        (&volumes["nextPageToken"], &volumes["volumes"][0]["capacity"]["totalBytes"]),
        (&"".into(), &(100u64 << 30).to_string().into())
    );
    let unknown = diskvitals(&served.socket(), &["volume", "nope"]).await;
    assert_eq!(
        (unknown.status.code(), text(&unknown.stderr).as_str()),
        (Some(1), "diskvitals: nothing here is known as `nope`\n")
    );
    let explained = diskvitals(&served.socket(), &["explain", "default/pod-b"]).await;
    assert!(
        text(&explained.stdout).contains("        mount /var/lib/kubelet"),
        "{}",
        text(&explained.stdout)
    );
}

#[tokio::test]
async fn a_path_of_any_form_means_the_mount_that_holds_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let real = folder.path().canonicalize().expect("its path");
    std::fs::create_dir_all(real.join("data/deep")).expect("created");
    std::fs::write(real.join("data/deep/file"), "").expect("written");
    std::os::unix::fs::symlink(real.join("data"), real.join("link")).expect("linked");
    let mount_point = |path: &Path, source: &str| {
        let what = MountPoint { fs_type: "ext4".into(), source: source.into() };
        (HostPath::from(path), what)
    };
    let mut snapshot = snapshot(0);
    let mut volume = snapshot.volumes[&VolumeId::csi("d.example", "a")].as_ref().clone();
    let mut facts = volume.facts.as_ref().clone();
    facts.mounts[0].path = HostPath::from(real.join("data").as_path());
    volume.facts = facts.into();
    snapshot.volumes.insert(volume.facts.id.clone(), Arc::new(volume));
    snapshot.node_context = Arc::new(NodeContext {
        mount_points: [
            mount_point(Path::new("/"), "overlay"),
            mount_point(&real.join("data"), "/dev/dm-0"),
        ]
        .into(),
        ..NodeContext::default()
    });
    let served = Served::start(snapshot).await;
    let socket = served.socket();
    let below = |path: &str| real.join(path).to_str().expect("text").to_owned();
    let is_taken = format!(" is on the mount {} (", below("data"));
    for path in [below("data/deep/file"), below("link/deep"), below("data/deep/../deep/./file")] {
        for command in ["explain", "volume", "findings"] {
            let answer = diskvitals(&socket, &[command, &path]).await;
            let (shown, note) = (text(&answer.stdout), text(&answer.stderr));
            assert!(answer.status.success(), "{command} {path}: {note}");
            assert!(note.contains(&is_taken), "{note}");
            assert!(command == "findings" || shown.contains("csi:d.example/a"), "{shown}");
        }
    }
    // Not a volume, and nothing at all.
    for (path, why) in [
        (real.to_str().expect("text"), ": it is on /: ext4, which is no volume"),
        ("/no/such/path", "nothing here is known as `/no/such/path`"),
    ] {
        let answer = diskvitals(&socket, &["explain", path]).await;
        assert_eq!(answer.status.code(), Some(1));
        assert!(text(&answer.stderr).contains(why), "{}", text(&answer.stderr));
    }
}

#[tokio::test]
async fn findings_are_found_by_a_prefix_a_thing_and_filters() {
    let served = Served::start(snapshot(0)).await;
    let all = served.client().await.findings(false).await.unwrap();
    let id = all.findings[0].id.clone();
    let shown = async |arguments: &[&str]| {
        let output = diskvitals(&served.socket(), arguments).await;
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        out
    };
    for word in [id.as_str(), &id[..5], "pv-a", "default/pod-a"] {
        let out = shown(&["findings", word]).await;
        assert!(out.contains(&id) && out.contains("to do"), "{word}: {out}");
    }
    // Nothing is known against the drive itself.
    assert_eq!(shown(&["findings", "sdb"]).await, "no findings\n");
    for (filter, fits) in [
        (["--severity", "bad"], true),
        (["--reason", "readonly"], true),
        (["--reason", "OutOfSpace"], false),
        (["--volume", "pv-a"], true),
        (["--volume", "pv-b"], false),
        (["--since", "2026-02-28"], true),
        (["--since", "1s"], false),
    ] {
        let out = shown(&["findings", filter[0], filter[1]]).await;
        assert_eq!(out.contains(&id), fits, "{filter:?}: {out}");
    }
    let wrong = diskvitals(&served.socket(), &["findings", "--reason", "ReadOnyl"]).await;
    assert_eq!(
        text(&wrong.stderr),
        "diskvitals: `ReadOnyl` is no reason; did you mean `ReadOnly`?\n"
    );
    let wrong = diskvitals(&served.socket(), &["findings", "pv-aa"]).await;
    assert_eq!(
        text(&wrong.stderr),
        "diskvitals: nothing here is known as `pv-aa`; did you mean `pv-a`?\n"
    );
    let json = shown(&["findings", "-o", "json", &id]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["action"].as_str().is_some_and(|text| !text.is_empty()));
}

#[tokio::test]
async fn the_findings_of_a_thing_are_acknowledged_after_a_question_only() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root may acknowledge");
        return;
    }
    let served = Served::start(snapshot(0)).await;
    let all = served.client().await.findings(false).await.unwrap();
    let id = all.findings[0].id.clone();
    let ack = async |word: &str, more: &[&str]| {
        let arguments = [&["ack", word, "--note", "known"], more].concat();
        let output = diskvitals(&served.socket(), &arguments).await;
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    // Standard input is no terminal.
    let (code, out, error) = ack("pv-a", &[]).await;
    assert_eq!(code, 2, "{error}");
    assert!(out.contains(&id), "{out}");
    assert!(error.contains("nothing is changed: --yes is needed"), "{error}");
    let (code, out, error) = ack("pv-a", &["--yes"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.ends_with("acknowledged 1 finding\n"), "{out}");
    let (code, out, _) = ack("sdb", &["--yes"]).await;
    assert_eq!((code, out.as_str()), (0, "nothing to acknowledge about sdb\n"));
    // One finding is named exactly: no question.
    let (code, out, _) = ack(&id[..6], &[]).await;
    assert!(code == 0 && out.contains("acked"), "{out}");
    // It is acknowledged: nothing is left to do.
    let (code, out, _) = ack("pv-a", &["--yes", "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["findings"]), (0, &serde_json::json!([])));
    for (word, text) in [
        ("x", "nothing here is known as `x`"),
        ("0123456789ab", "no active finding has the id `0123456789ab`"),
    ] {
        let (code, _, error) = ack(word, &["--yes"]).await;
        assert_eq!((code, error), (1, format!("diskvitals: {text}\n")));
    }
}

#[tokio::test]
async fn a_shell_is_offered_the_names_that_can_be_typed() {
    let mut hostile = snapshot(0);
    for volume in hostile.volumes.values_mut() {
        let volume = Arc::make_mut(volume);
        Arc::make_mut(&mut volume.facts).pv = Some(match volume.facts.handle.as_deref() {
            Some("a") => "pv-a".to_owned(),
            _ => "pv-\u{202e}b\n$(reboot)".to_owned(),
        });
    }
    let served = Served::start(hostile).await;
    let offered = async |words: &[&str]| {
        let arguments = [&["complete", "--", "diskvitals"], words].concat();
        let output = diskvitals(&served.socket(), &arguments).await;
        assert!(output.status.success() && output.stderr.is_empty());
        text(&output.stdout)
    };
    assert_eq!(offered(&["drive", "s"]).await, "sda\nsdb\n");
    assert_eq!(offered(&["volume", "pv"]).await, "pv-a\n");
    assert_eq!(offered(&["reasons", "PendingS"]).await, "PendingSectors\n");
    assert_eq!(offered(&["status", ""]).await, "");
    let nowhere = served.dir.path().join("none.sock");
    let output = diskvitals(&nowhere, &["complete", "--", "diskvitals", "drive", ""]).await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
}
