//! A configuration that users may write, and programs that belong to them: root uses neither.

use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::Path;

use nix::mount::MsFlags;

use crate::programs::built_program;
use crate::support::daemon::Arguments;
use crate::support::tools::{bind, remount, umount};
use crate::support::{Daemon, SOON, Testbed, eventually};

const USER: u32 = 4001;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn check(config: &Path) -> (bool, String) {
    let output = std::process::Command::new(built_program("diskvitalsd"))
        .arg("--check-config")
        .arg("--config")
        .arg(config)
        .output()
        .expect("diskvitalsd starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_writes_into_the_configuration_is_refused_and_nothing_of_it_runs() {
    let testbed = Testbed::new();
    let arguments = Arguments::of(&testbed);
    let daemon = Daemon::start_with(&arguments).await;
    let (folder, owned) = (testbed.path("user"), testbed.path("user/owned"));
    std::fs::create_dir(&folder).expect("a folder");
    chown(&folder, Some(USER), Some(USER)).expect("its owner");
    let program = folder.join("program");
    std::fs::write(&program, format!("#!/bin/sh\nid > {}\n", owned.display())).expect("written");
    set_mode(&program, 0o755);
    chown(&program, Some(USER), Some(USER)).expect("its owner");

    let genuine = std::fs::read_to_string(&arguments.config).expect("the configuration");
    let evil = format!("[checks.tools]\ne2fsck = \"{}\"\n", program.display());
    set_mode(&arguments.config, 0o666);
    std::fs::write(&arguments.config, format!("{genuine}{evil}")).expect("written");
    let config = arguments.config.display().to_string();
    let reason =
        format!("{config} has mode 0666 (owner uid 0, gid 0), so that others could change");
    eventually("the reload is refused", SOON, async || {
        daemon.log().contains(&reason).then_some(())
    })
    .await;
    let (is_accepted, text) = check(&arguments.config);
    assert!(!is_accepted && text.contains(&reason), "{text}");

    // Root's own file, which names the user's program.
    set_mode(&arguments.config, 0o644);
    let (is_accepted, text) = check(&arguments.config);
    let reason = format!("{} belongs to uid {USER} (mode 0755)", folder.display());
    assert!(!is_accepted && text.contains(&reason), "{text}");
    let root_owned = testbed.path("program");
    std::fs::rename(&program, &root_owned).expect("moved");
    std::fs::write(
        &arguments.config,
        format!("{genuine}{}", evil.replace("/user/program", "/program")),
    )
    .expect("written");
    let (is_accepted, text) = check(&arguments.config);
    assert!(!is_accepted && text.contains("/program belongs to uid 4001"), "{text}");
    chown(&root_owned, Some(0), Some(0)).expect("its owner");
    let (is_accepted, text) = check(&arguments.config);
    assert!(is_accepted, "{text}");
    assert!(!owned.exists());
}

/// It could name any file as its secret, and any server as the one to which that is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the program under test")]
async fn root_follows_no_configuration_of_the_notifiers_user() {
    let testbed = Testbed::new();
    let (config, state) = (testbed.path("notify.toml"), testbed.path("notify-state"));
    std::fs::create_dir(&state).expect("a folder");
    let target = "[[target]]\nname = \"x\"\ntype = \"exec\"\ncommand = [\"/bin/true\"]\n";
    std::fs::write(&config, target).expect("written");
    chown(&config, Some(USER), Some(USER)).expect("its owner");
    let notify = |arguments: &[&str]| {
        let output = std::process::Command::new(built_program("diskvitals-notify"))
            .arg("--config")
            .arg(&config)
            .arg("--state-dir")
            .arg(&state)
            .args(arguments)
            .output()
            .expect("diskvitals-notify starts");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let reason = format!("notify.toml belongs to uid {USER} (mode 0644)");
    chown(&state, Some(USER), Some(USER)).expect("its owner");
    for as_root in [&[][..], &["--check-config"], &["test"]] {
        let text = notify(as_root);
        assert!(text.contains(&reason), "{text}");
    }
}

/// A ConfigMap of Kubernetes: a directory of mode 0777 with the file behind a link, mounted read-only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_others_may_write_is_trusted_if_the_kubelet_has_mounted_it() {
    let testbed = Testbed::new();
    let folder = testbed.path("config-map");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::create_dir(folder.join("..2026")).expect("its content");
    std::fs::write(folder.join("..2026/diskvitalsd.toml"), "").expect("written");
    let data = folder.join("..data");
    std::os::unix::fs::symlink("..2026", &data).expect("a link");
    std::os::unix::fs::symlink("..data/diskvitalsd.toml", folder.join("diskvitalsd.toml"))
        .expect("a link");
    set_mode(&folder, 0o777);
    let config = folder.join("diskvitalsd.toml");
    let (is_accepted, text) = check(&config);
    let reason = format!("{} has mode 0777", folder.display());
    assert!(!is_accepted && text.contains(&reason), "{text}");
    let mounted = testbed.path("mounted");
    bind(&folder, &mounted);
    remount(&mounted, MsFlags::MS_BIND | MsFlags::MS_RDONLY);
    let config = mounted.join("diskvitalsd.toml");
    let genuine = check(&config);
    // A directory below a read-only mount, as all are in a hardened unit.
    let below = folder.join("below");
    std::fs::create_dir(&below).expect("a folder");
    std::os::unix::fs::symlink("..2026", below.join("..data")).expect("a link");
    std::fs::write(below.join("diskvitalsd.toml"), "").expect("written");
    set_mode(&below, 0o777);
    let no_mount = check(&mounted.join("below/diskvitalsd.toml"));
    // A shared directory: its users can make such a link, which is theirs.
    lchown(&data, Some(USER), Some(USER)).expect("its owner");
    std::fs::remove_file(folder.join("diskvitalsd.toml")).expect("removed");
    std::fs::write(folder.join("diskvitalsd.toml"), "").expect("written");
    let of_a_user = check(&config);
    std::fs::remove_file(&data).expect("removed");
    let without = check(&config);
    umount(&mounted);
    assert!(genuine.0, "{}", genuine.1);
    for (is_accepted, text) in [no_mount, of_a_user, without] {
        assert!(!is_accepted && text.contains(" has mode 0777"), "{text}");
    }
}
