//! The rules of ARCHITECTURE.md, "Who may import what": the test reads them from its table and
//! checks every path in src/, in every notation. Tests inside src/ obey them too.
//!
//! The table's cells contain, in backquotes, modules or items without `crate::`; `everything`; all
//! other text is for readers. A module obeys the row with the longest prefix of its name. A member
//! of the workspace counts as a module.

mod paths;
mod programs;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use paths::{Reference, Source, is_within};

struct Rule {
    module: String,
    /// `None` permits everything.
    may_use: Option<Vec<String>>,
    never: Vec<String>,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Parses the rows of the table below the heading.
fn rules(page: &str) -> Vec<Rule> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Who may import what"))
        .expect("the section on imports");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rules: Vec<Rule> = rows
        .flat_map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let &[modules, may_use, never] = cells.as_slice() else {
                panic!("three cells a row: {row}");
            };
            quoted(modules).into_iter().map(move |module| Rule {
                module,
                may_use: (may_use != "everything").then(|| quoted(may_use)),
                never: quoted(never),
            })
        })
        .collect();
    assert!(!rules.is_empty(), "the table has rows");
    rules
}

/// The strings in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rule_of<'r>(rules: &'r [Rule], module: &str) -> Option<&'r Rule> {
    rules.iter().filter(|rule| is_within(module, &rule.module)).max_by_key(|rule| rule.module.len())
}

/// The reason why the reference is not allowed.
fn violation(rules: &[Rule], reference: &Reference) -> Option<String> {
    let rule = rule_of(rules, &reference.module)?;
    let place = format!("{}:{}: `{}`", reference.file.display(), reference.line, reference.path);
    if let Some(banned) = rule.never.iter().find(|banned| is_within(&reference.means, banned)) {
        return Some(format!("{place}: `{}` never uses `{banned}`", rule.module));
    }
    let target = match reference.path.strip_prefix("crate") {
        Some(rest) if rest.is_empty() || rest.starts_with("::") => rest.trim_start_matches("::"),
        _ => return None,
    };
    let Some(may_use) = &rule.may_use else {
        return None;
    };
    // A submodule with its own row counts as another module.
    let own = rule_of(rules, target).is_some_and(|of_target| of_target.module == rule.module);
    let allowed = own || may_use.iter().any(|prefix| is_within(target, prefix));
    (!allowed).then(|| {
        format!(
            "{place}: `{}` may use {}",
            rule.module,
            if may_use.is_empty() {
                "nothing else of this crate".to_owned()
            } else {
                may_use.join(", ")
            }
        )
    })
}

fn violations(rules: &[Rule], source: &Source) -> Vec<String> {
    source.references.iter().filter_map(|reference| violation(rules, reference)).collect()
}

/// The source is read once, because that takes seconds.
static SOURCE: LazyLock<Source> =
    LazyLock::new(|| Source::read_workspace(&repository().join("src")));

fn page() -> String {
    std::fs::read_to_string(repository().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md")
}

#[test]
fn every_path_in_src_obeys_the_table_of_imports() {
    assert!(SOURCE.references.len() > 10_000, "the source is read");
    let found = violations(&rules(&page()), &SOURCE);
    assert!(found.is_empty(), "ARCHITECTURE.md, \"Who may import what\":\n{}", found.join("\n"));
}

#[test]
fn the_table_of_imports_names_nothing_that_is_gone() {
    let source = &*SOURCE;
    let rules = rules(&page());
    for rule in &rules {
        assert!(source.exists(&rule.module), "`{}` has a row and is gone", rule.module);
        for path in rule.may_use.iter().flatten() {
            assert!(source.exists(path), "`{}` may use `{path}`, which is gone", rule.module);
        }
    }
}

#[test]
fn unsafe_code_is_in_one_file_only() {
    let allowed = Path::new("src/host/sys.rs");
    let found: Vec<String> = rust_files(&repository().join("src"))
        .into_iter()
        .filter_map(|file| {
            let line = paths::first_unsafe(&file)?;
            let file = file.strip_prefix(repository()).expect("below").to_owned();
            (file != allowed).then(|| format!("{}:{line}", file.display()))
        })
        .collect();
    assert!(found.is_empty(), "unsafe belongs into {}: {found:?}", allowed.display());
    assert!(paths::first_unsafe(&repository().join(allowed)).is_some(), "`unsafe` is recognized");
}

#[test]
fn no_file_is_called_mod_rs() {
    let found: Vec<PathBuf> = ["src", "tests", "hwtests", "benches"]
        .iter()
        .flat_map(|folder| rust_files(&repository().join(folder)))
        .filter(|file| file.ends_with("mod.rs"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("readable") {
        let entry = entry.expect("readable");
        let kind = entry.file_type().expect("has a type");
        // Links are not followed: recorded hosts contain circular links.
        if kind.is_dir() {
            files.extend(rust_files(&entry.path()));
        } else if kind.is_file() && entry.path().extension().is_some_and(|name| name == "rs") {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

const TABLE: &str = "
## Who may import what

| Module | May use (besides itself) | Never |
|---|---|---|
| `model` | nothing of ours | `std::fs`, `std::time::Instant`, `tokio`, `jiff::Timestamp::now` |
| `host` | `model::path` | |
| `host::device` | `model` | |
| `app` | everything | |

## Next
";

/// A crate whose `model` and `host` have these lines.
fn crate_of(model: &str, host: &str) -> Source {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, text).expect("is written");
    };
    write("lib.rs", "pub mod app; pub mod host; pub mod model;");
    write("app.rs", "use crate::{host::sys, model};");
    write("host.rs", &format!("pub mod device; pub mod sys;\n{host}"));
    write("host/sys.rs", "pub struct Call;");
    write("host/device.rs", "use crate::model::drive::Drive;");
    write("model.rs", &format!("pub mod drive; pub mod path; pub mod time;\n{model}"));
    write("model/drive.rs", "pub struct Drive;");
    write("model/path.rs", "pub struct HostPath;");
    write("model/time.rs", "pub use jiff::Timestamp;");
    Source::read(dir.path())
}

/// The violations of the table in such a crate.
fn tried(model: &str, host: &str) -> Vec<String> {
    violations(&rules(TABLE), &crate_of(model, host))
}

#[test]
fn a_forbidden_import_is_found_however_it_is_written() {
    for model in [
        "use crate::host;",
        "use crate::{host::sys::Call, model::drive::Drive};",
        "use crate::{self as all};",
        "use crate::*;",
        "use super::host::sys as other;",
        "mod inner { use super::super::host::*; }",
        "fn f(_: crate::host::sys::Call) {}",
        "fn f() { let _ = Vec::<super::host::sys::Call>::new(); }",
        "fn f() { use self::super::host::sys::Call; }",
        "fn f() { println!(\"{:?}\", crate::host::sys::Call); }",
        "macro_rules! m { () => { $crate::host::sys::Call } }",
        "#[serde(with = \"crate::host::sys\")] struct S;",
        "impl crate::host::sys::Call {}",
        "use tokio::sync::mpsc;",
        "use std::{fmt, fs};",
        "use std as s; fn f() { s::fs::read(\"x\"); }",
        "use std::time; fn f() { time::Instant::now(); }",
        "#[tokio::test] async fn f() {}",
        "fn f() { jiff::Timestamp::now(); }",
        "use jiff::Timestamp as T; mod tests { use super::*; fn f() { T::now(); } }",
        "use time::Timestamp; fn f() { assert!(Timestamp::now() > x); }",
    ] {
        assert_ne!(tried(model, ""), [] as [&str; 0], "{model}");
    }
    for host in [
        "use crate::model;",
        "use crate::model::{path::HostPath, drive::Drive};",
        "use crate::host::device;",
        "use device::Device;",
    ] {
        assert_ne!(tried("", host), [] as [&str; 0], "{host}");
    }
}

#[test]
fn what_the_table_allows_is_not_a_violation() {
    for model in [
        "use crate::model::{drive::Drive, path};",
        "use self::drive::Drive; use drive as d; fn f(_: d::Drive) {}",
        "pub(in crate::model) struct S; pub(crate) struct T;",
        "use std::time::Duration; use jiff::Timestamp; fn f(_: Timestamp) {}",
        "/// See [`crate::host`], tokio::sync.\nfn f() { let _ = \"crate::host::sys\"; }",
        "mod tokio { pub fn f() {} } fn f() { tokio::f(); }",
    ] {
        assert_eq!(tried(model, ""), [] as [&str; 0], "{model}");
    }
    for host in [
        "use crate::model::path::HostPath;",
        "use sys::Call; use crate::host::sys;",
        "use std::fs;",
    ] {
        assert_eq!(tried("", host), [] as [&str; 0], "{host}");
    }
}
