use super::*;

fn shell(script: &str) -> Exec {
    Exec {
        program: "/bin/sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        stdin: Vec::new(),
        timeout: Duration::from_secs(60),
        max_output: 100,
    }
}

#[tokio::test]
async fn input_output_status_and_a_small_environment() {
    let exec = Exec { stdin: b"hello".to_vec(), max_output: 1000, ..shell("cat; env >&2; exit 3") };
    let output = run(&exec).await.unwrap();
    assert_eq!(
        (output.status, output.stdout.as_slice(), output.truncated),
        (3 << 8, &b"hello"[..], false)
    );
    let env = String::from_utf8(output.stderr).unwrap();
    let names: std::collections::BTreeSet<&str> =
        env.lines().filter_map(|line| line.split('=').next()).collect();
    assert!(names.is_subset(&["LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"].into()), "{env}");
}

#[tokio::test]
async fn output_is_bounded_and_an_unread_input_is_no_error() {
    let exec = Exec { stdin: vec![b'x'; 1 << 20], ..shell("exec 0<&-; head -c 300000 /dev/zero") };
    let output = run(&exec).await.unwrap();
    assert_eq!((output.status, output.stdout.len(), output.truncated), (0, 100, true));
}

#[tokio::test]
async fn a_time_out_kills_the_children_too() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let exec = Exec {
        timeout: Duration::from_millis(500),
        ..shell(&format!("sleep 1000 & echo $! > {}; wait", pids.display()))
    };
    assert!(matches!(run(&exec).await, Err(ExecError::TimedOut { .. })));
    // Killed or never started under load; it must not be running.
    if let Ok(pid) = std::fs::read_to_string(&pids).unwrap_or_default().trim().parse::<u32>() {
        let alive = || {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z"))
        };
        for _ in 0..600 {
            if !alive() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{pid} still runs");
    }
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed() {
    let exec = Exec {
        timeout: Duration::from_millis(200),
        ..shell("trap '' TERM INT HUP; while :; do sleep 1000; done")
    };
    assert!(matches!(run(&exec).await, Err(ExecError::TimedOut { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_unkillable_child_is_returned_and_its_exit_can_be_awaited() {
    let (release, held) = oneshot::channel::<()>();
    let end = async move {
        held.await.ok();
    };
    let mut gone =
        Box::pin(reap(Some(std::process::id()), end).await.expect("it is still there").exited());
    assert!(tokio::time::timeout(Duration::from_secs(86400), &mut gone).await.is_err());
    release.send(()).unwrap();
    gone.await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_exits_soon_after_the_kill_is_reaped() {
    assert!(reap(None, tokio::time::sleep(Duration::from_millis(100))).await.is_none());
}

#[tokio::test]
async fn background_children_do_not_delay_the_result() {
    let output = run(&shell("sleep 5 & echo done")).await.unwrap();
    assert_eq!(output.stdout, b"done\n");
}

#[tokio::test]
async fn a_dropped_streaming_child_is_killed_with_its_process_group() {
    use std::io::BufRead;
    let (following, output) = spawn_streaming(
        Path::new("/bin/sh"),
        &["-c".to_owned(), "sleep 1000 & echo $!; wait".to_owned()],
    )
    .await
    .unwrap();
    let pid = tokio::task::spawn_blocking(move || {
        nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()))
            .unwrap();
        std::io::BufReader::new(std::fs::File::from(output)).lines().next().unwrap().unwrap()
    });
    let stat = format!("/proc/{}/stat", pid.await.unwrap());
    assert!(std::fs::exists(&stat).unwrap());
    drop(following);
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_program_on_a_dead_disk_does_not_block_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (program, lease) = program_on_a_dead_disk(dir.path());
    let mut start = Box::pin(spawn_streaming(&program, &[]));
    let started = tokio::time::timeout(Duration::from_millis(50), &mut start).await;
    assert!(started.is_err(), "the disk has not answered");
    drop(lease);
    start.await.unwrap();
}

#[tokio::test]
async fn a_relative_or_missing_program_is_an_error_that_names_it() {
    let error = run(&Exec { program: "sh".into(), ..shell("") }).await.unwrap_err();
    assert_eq!(error.to_string(), "starting sh: the path is not absolute");
    let error = run(&Exec { program: "/nonexistent/x".into(), ..shell("") }).await.unwrap_err();
    assert_eq!(error.to_string(), "starting /nonexistent/x");
}
