//! `check --image`: files, without a daemon, for root and for any user who may read them.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Output;

use diskvitals_cli::check_image::check_image_in;
use diskvitals_fscheck::policy::CheckPolicy;
use diskvitals_fscheck::{Filesystem, Mode, Termination};
use diskvitals_host::helper::Program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::fixture::{
    ALL, WITHOUT_CONTROL_GROUPS, digest, groups, make, processes, script, text, until,
};
use crate::programs::built_program;
use crate::support::Testbed;
use crate::support::tools::{bind, run};

fn jail_of_the_command_line() -> Program {
    Program {
        program: built_program("diskvitals").into(),
        args: diskvitals_checker::JAIL_ARGS.map(Into::into).to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_checked_without_a_daemon_and_never_changed() {
    let testbed = Testbed::new();
    for filesystem in ALL {
        let disk = make(&testbed, filesystem);
        disk.detach();
        // No other user may read it.
        std::fs::set_permissions(&disk.image, std::fs::Permissions::from_mode(0o600))
            .expect("its mode");
        let before = (
            digest(&disk.image),
            disk.image.metadata().and_then(|data| data.modified()).expect("its time"),
        );
        let check = |policy: &CheckPolicy| {
            check_image_in(&jail_of_the_command_line(), &disk.image, None, policy, &mut |_| ())
                .expect("a check")
        };
        let usual = check(&CheckPolicy::default());
        // What `steps` derives from runs is tested elsewhere: the run itself is examined if there
        // is one.
        for run in &usual.runs {
            assert_eq!(
                (&run.termination, run.mode),
                (&Termination::Exited(0), Mode::Unmounted),
                "{}",
                text(run)
            );
            assert!(run.command.ends_with(&disk.image.display().to_string()), "{}", run.command);
        }
        assert_eq!(
            (usual.target.filesystem, usual.target.name.as_str()),
            (filesystem, disk.image.to_str().expect("text"))
        );
        // Whatever the checker tries.
        let body = r#"
            for last in "$@"; do :; done
            dd if=/dev/zero of=$last bs=512 count=1 conv=notrunc 2>/dev/null && echo POSSIBLE
            (exec 5<>$last) 2>/dev/null && echo POSSIBLE
            truncate -s 0 $last 2>/dev/null && echo POSSIBLE
            chmod 666 $last 2>/dev/null && echo POSSIBLE
            touch /tmp/dvhw-image 2>/dev/null && echo POSSIBLE
            mount -o remount,rw /dev/image 2>/dev/null && echo POSSIBLE
            umount /dev/image 2>/dev/null && echo POSSIBLE
            ls -A /sys/fs/cgroup 2>/dev/null | grep . && echo POSSIBLE
            dd if=$last of=/dev/null bs=512 count=1 2>/dev/null && echo read
            grep CapEff /proc/self/status
        "#;
        let mut policy = CheckPolicy::default();
        let command = script(&testbed, "tries", body);
        (policy.tools.e2fsck, policy.tools.xfs_repair, policy.tools.btrfs) =
            (Some(command.clone()), Some(command.clone()), Some(command));
        for run in &check(&policy).runs {
            assert_eq!(text(run), "read\nCapEff:\t0000000000000000\n");
        }
        let after = (
            digest(&disk.image),
            disk.image.metadata().and_then(|data| data.modified()).expect("its time"),
        );
        assert_eq!(before, after);
    }
}

/// `nobody`: neither root nor the owner of the image.
const NOBODY_UID: u32 = 65534;

#[expect(clippy::disallowed_methods, reason = "the program under test, as another user")]
fn check_as_nobody(program: &Path, image: &Path) -> Output {
    let user = [
        format!("--reuid={NOBODY_UID}"),
        format!("--regid={NOBODY_UID}"),
        "--clear-groups".to_owned(),
    ];
    let mut command = std::process::Command::new("/usr/bin/setpriv");
    command.args(user).arg(program).args(["--output", "json", "check", "--image"]).arg(image);
    command.output().expect("setpriv starts")
}

#[test]
fn images_are_checked_for_users_who_may_read_them_and_others_get_an_error() {
    let testbed = Testbed::new();
    // Other users need no access to the testbed or to the directory of the program.
    std::fs::set_permissions(testbed.path(""), std::fs::Permissions::from_mode(0o711))
        .expect("the folder's mode");
    let program = testbed.path("diskvitals");
    bind(Path::new(built_program("diskvitals")), &program);
    for filesystem in ALL {
        let disk = make(&testbed, filesystem);
        disk.detach();
        // Readable, and nothing else.
        chown(&disk.image, Some(NOBODY_UID), None).expect("its owner");
        std::fs::set_permissions(&disk.image, std::fs::Permissions::from_mode(0o400))
            .expect("its mode");
        let before = digest(&disk.image);
        let verdict = |output: &Output| {
            let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat())
                .into_owned();
            let check: serde_json::Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{error}: {text}"));
            (output.status.code(), check["verdict"].as_str().unwrap_or(&text).to_owned())
        };
        assert_eq!(
            verdict(&check_as_nobody(&program, &disk.image)),
            (Some(0), "VERDICT_CLEAN".to_owned()),
            "{}",
            filesystem.name()
        );
        assert_eq!(digest(&disk.image), before);

        // The problems are reported as well: lost+found is missing.
        if filesystem == Filesystem::Ext4 {
            run("/usr/sbin/debugfs", &[&"-w", &"-R", &"clri <11>", &disk.image]);
            let (status, verdict) = verdict(&check_as_nobody(&program, &disk.image));
            assert_eq!((status, verdict.as_str()), (Some(1), "VERDICT_CORRUPTED"));
        }

        std::fs::set_permissions(&disk.image, std::fs::Permissions::from_mode(0o000))
            .expect("its mode");
        let refused = check_as_nobody(&program, &disk.image);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(3), 0), "{text}");
        assert!(
            text.contains(&format!("opening {}: Permission denied", disk.image.display())),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
async fn a_check_of_a_file_that_a_signal_ends_leaves_neither_a_process_nor_a_control_group() {
    let testbed = Testbed::new();
    let body = r#"exec perl -e '$SIG{TERM} = $SIG{HUP} = $SIG{INT} = "IGNORE"; fork(); sleep 1000 while 1' signal-attack"#;
    let config = testbed.path("checks.toml");
    let checker = script(&testbed, "attacker", body);
    std::fs::write(&config, format!("[checks.tools]\ne2fsck = \"{}\"\n", checker.display()))
        .expect("written");
    let disk = make(&testbed, Filesystem::Ext4);
    disk.detach();
    for (signal, mode) in
        [(Signal::SIGINT, 0o644), (Signal::SIGTERM, 0o600), (Signal::SIGHUP, 0o600)]
    {
        std::fs::set_permissions(&disk.image, std::fs::Permissions::from_mode(mode))
            .expect("its mode");
        let mut check = std::process::Command::new(built_program("diskvitals"))
            .args(["check", "--config"])
            .arg(&config)
            .arg("--image")
            .arg(&disk.image)
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        until("both processes run", || processes("signal-attack").len() == 2).await;
        let attacker = processes("signal-attack")[0];
        let text = std::fs::read_to_string(format!("/proc/{attacker}/cgroup")).expect("its group");
        let groups = groups(&text);
        assert!(groups.iter().all(|group| group.exists()), "{groups:?}");
        let pid = Pid::from_raw(i32::try_from(check.id()).expect("a process id"));
        kill(pid, signal).expect("a signal");
        let status = check.wait().expect("its end");
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}: {status}");
        assert_eq!(processes("signal-attack"), Vec::<i32>::new(), "{signal}");
        assert!(!groups.iter().any(|group| group.exists()), "{signal}: {groups:?}");
    }
}

/// No control group can be made by `nobody`, or where none is mounted. The kernel has no limit on the number of
/// root's processes: only for an image that root alone may read, the checker has no user id of its own.
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn a_wrapper_of_the_checker_works_without_a_control_group_unless_it_would_run_as_root() {
    let testbed = Testbed::new();
    let program = testbed.path("diskvitals");
    bind(Path::new(built_program("diskvitals")), &program);
    let wrapper = script(&testbed, "wrapper", "/usr/sbin/e2fsck \"$@\"\n");
    let config = testbed.path("checks.toml");
    let tools = format!("[checks.tools]\ne2fsck = \"{}\"\n", wrapper.display());
    std::fs::write(&config, tools).expect("written");
    let disk = make(&testbed, Filesystem::Ext4);
    disk.detach();
    let nobody = [
        "/usr/bin/setpriv".to_owned(),
        format!("--reuid={NOBODY_UID}"),
        format!("--regid={NOBODY_UID}"),
        "--clear-groups".to_owned(),
    ];
    let root = WITHOUT_CONTROL_GROUPS.map(str::to_owned);
    for (before, mode, verdict, reason) in [
        (&nobody[..], 0o644, "VERDICT_CLEAN", ""),
        (&root, 0o644, "VERDICT_CLEAN", ""),
        (&root, 0o600, "VERDICT_FAILED", "Let other users read the image"),
    ] {
        std::fs::set_permissions(&disk.image, std::fs::Permissions::from_mode(mode))
            .expect("its mode");
        let output = std::process::Command::new(&before[0])
            .args(&before[1..])
            .arg(&program)
            .args(["--output", "json", "check", "--config"])
            .arg(&config)
            .arg("--image")
            .arg(&disk.image)
            .output()
            .expect("it starts");
        let text =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(text.contains(verdict) && text.contains(reason), "{text}");
    }
}
