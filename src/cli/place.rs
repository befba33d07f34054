//! Names of things that are not the daemon's: a path of any file or folder, as df(1) takes it. The
//! daemon names the mount that holds it.
//!
//! In: the word of a person. Out: the name to ask the daemon for. Links are followed by a process of
//! our own with a time-out, because a path below a mount that hangs answers never.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::complain;
use diskvitals_finding::path::HostPath;
use diskvitals_host::exec::{self, Exec, ExecError};
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// The arguments that start our binary as the process that follows links; a path is behind them.
pub const REAL_PATH_ARGS: [&str; 2] = ["worker", "real-path"];

const TIMEOUT: Duration = Duration::from_secs(2);
/// PATH_MAX; a canonical path has no other limit.
const MAX_OUTPUT: usize = 1 << 16;
/// The exit status for a path that does not exist.
const EXIT_ABSENT: u8 = 2;

/// Asks for the word. If the daemon knows no such name, and a file or folder has it, asks for the
/// mount that holds that.
pub async fn by_name<T>(
    client: &Client,
    word: &str,
    ask: impl AsyncFn(&str) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let unknown = match ask(word).await {
        Err(error) if error.is_not_found() => error,
        answer => return answer,
    };
    let Some(path) = real_path(word).await else {
        return Err(unknown);
    };
    let query = format!("path:{path}");
    match client.volume(&query).await {
        Ok(volume) => {
            complain(&on_mount(word, &path, &volume));
            ask(&volume.id).await
        }
        // A device, or a filesystem that is no volume: the daemon says which.
        Err(_) => ask(&query).await,
    }
}

/// `./a is on the mount /srv (ext4 on /dev/sda1)`.
fn on_mount(word: &str, path: &HostPath, volume: &wire::Volume) -> String {
    let mounts = volume.mounts.iter().filter(|mount| {
        let point = HostPath::unescape(mount.path.as_bytes());
        path.strip_prefix(&point).is_some()
    });
    let Some(mount) = mounts.max_by_key(|mount| mount.path.len()) else {
        return format!("{word} is on {}", volume.id);
    };
    let bind = match mount.root.as_str() {
        "" | "/" => String::new(),
        root => format!("{root} of "),
    };
    let fs_type = volume.filesystem.as_ref().map_or("filesystem", |it| it.r#type.as_str());
    format!("{word} is on the mount {} ({bind}{fs_type} on {})", mount.path, volume.source)
}

/// The path without links. None: no file has this name.
async fn real_path(word: &str) -> Option<HostPath> {
    let absolute = std::env::current_dir().ok()?.join(word);
    let plain = || without_dots(&absolute);
    let run = Exec {
        program: std::env::current_exe().ok()?,
        args: REAL_PATH_ARGS
            .into_iter()
            .map(str::to_owned)
            .chain([absolute.to_str()?.to_owned()])
            .collect(),
        stdin: Vec::new(),
        timeout: TIMEOUT,
        max_output: MAX_OUTPUT,
    };
    let why = match exec::run_own(&run).await {
        Ok(output) if output.status == 0 => return Some(HostPath::new(&output.stdout)),
        // wait(2) has the exit status in the second byte.
        Ok(output) if output.status == i32::from(EXIT_ABSENT) << 8 => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(ExecError::TimedOut { .. } | ExecError::Unkillable { .. }) => {
            format!("no answer within {} s", TIMEOUT.as_secs())
        }
        Err(error) => with_causes(&error),
    };
    complain(&format!("links in {word} were not followed: {why}"));
    Some(HostPath::from(plain().as_path()))
}

/// The process that follows links: prints the path without them.
pub fn print_real_path(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let path = PathBuf::from(args.next().unwrap_or_default());
    let absent = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    };
    // Errors cannot be reported on an unwritable standard output: the status says it.
    match path.canonicalize() {
        Ok(real) => match io::stdout().write_all(real.as_os_str().as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) if absent(&error) => ExitCode::from(EXIT_ABSENT),
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// The absolute path with `.` and `..` resolved by their text alone.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_resolved_by_text() {
        for (path, plain) in [("/srv/./db/../web", "/srv/web"), ("/../a//b/", "/a/b"), ("/", "/")] {
            assert_eq!(without_dots(Path::new(path)), Path::new(plain));
        }
    }

    #[test]
    fn the_mount_that_was_taken_is_named() {
        let mount = |path: &str, root: &str| wire::VolumeMount {
            path: path.to_owned(),
            root: root.to_owned(),
            ..Default::default()
        };
        let volume = wire::Volume {
            id: "fs:u".to_owned(),
            filesystem: Some(wire::Filesystem { r#type: "ext4".to_owned(), ..Default::default() }),
            source: "/dev/sda1".to_owned(),
            mounts: vec![mount("/", "/"), mount("/srv/my\\040web", "/web")],
            ..Default::default()
        };
        let line = |path: &str| on_mount("it", &HostPath::from(path), &volume);
        assert_eq!(line("/etc/fstab"), "it is on the mount / (ext4 on /dev/sda1)");
        assert_eq!(
            line("/srv/my web/a"),
            "it is on the mount /srv/my\\040web (/web of ext4 on /dev/sda1)"
        );
    }
}
