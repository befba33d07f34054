//! What each program is built from, as `cargo tree` says. Its Cargo.toml permits it; this list is for
//! what a dependency brings along.

use std::collections::BTreeSet;
use std::process::Command;

struct Program {
    package: &'static str,
    /// All members of the workspace in it, without `diskvitals-`.
    members: &'static [&'static str],
    /// Others' crates that it must not have.
    without: &'static [&'static str],
}

const PROGRAMS: [Program; 6] = [
    Program {
        package: "diskvitals-cli",
        members: &[
            "analyze",
            "checker",
            "cli",
            "config",
            "convert",
            "finding",
            "fscheck",
            "host",
            "kernel-log",
            "model",
            "program",
            "slow",
            "smart",
            "terminal",
            "text",
            "wire",
        ],
        without: &["kube", "lettre", "rusqlite", "udev"],
    },
    Program {
        package: "diskvitals-daemon",
        members: &[
            "checker",
            "config",
            "convert",
            "daemon",
            "exposition",
            "finding",
            "fscheck",
            "host",
            "kernel-log",
            "model",
            "program",
            "provision",
            "quota",
            "smart",
            "source",
            "text",
            "wire",
        ],
        without: &["kube", "lettre"],
    },
    Program {
        package: "diskvitals-csi",
        members: &[
            "cluster",
            "csi",
            "finding",
            "host",
            "kubernetes",
            "program",
            "quota",
            "text",
            "wire",
        ],
        without: &["lettre", "rusqlite", "schemars", "udev"],
    },
    Program {
        package: "diskvitals-fleet",
        members: &[
            "cluster",
            "exposition",
            "finding",
            "fleet",
            "host",
            "kubernetes",
            "program",
            "quota",
            "text",
        ],
        without: &["lettre", "rusqlite", "tonic", "udev"],
    },
    Program {
        package: "diskvitals-notifier",
        members: &["finding", "host", "notifier", "program", "text", "wire"],
        without: &["kube", "udev"],
    },
    Program {
        package: "diskvitals-plugin",
        members: &[
            "cluster",
            "finding",
            "host",
            "kubernetes",
            "plugin",
            "program",
            "terminal",
            "text",
        ],
        without: &["lettre", "rusqlite", "tonic", "udev"],
    },
];

/// The names of the packages that the package is linked with, itself included.
#[allow(clippy::disallowed_methods)] // cargo itself: it reads the lock file, and touches no device.
fn linked(package: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--quiet", "--locked", "--offline", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}", "--package", package])
        .current_dir(super::repository())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let lines = String::from_utf8(tree.stdout).expect("text");
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_program_is_built_from_what_this_list_says() {
    for program in PROGRAMS {
        let linked = linked(program.package);
        assert!(linked.contains("serde"), "{} is read: {linked:?}", program.package);
        let members: Vec<&str> =
            linked.iter().filter_map(|name| name.strip_prefix("diskvitals-")).collect();
        assert_eq!(members, program.members, "{}", program.package);
        let found: Vec<_> = program.without.iter().filter(|it| linked.contains(**it)).collect();
        assert!(found.is_empty(), "{} has {found:?}", program.package);
    }
}
