//! Runs a program that leaves a process behind on purpose: one that must outlive this one.
//!
//! In: an absolute path that nobody else may change. Out: how the program itself ended. What it leaves
//! has a process group of its own and no pipe that ends with this process. No time-out: for a helper
//! process that has one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Of what a failed program says.
const MAX_OUTPUT: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum DetachedError {
    #[error("making a file in memory for what {} says", .0.display())]
    Memory(PathBuf, #[source] Errno),
    #[error("starting {}", .0.display())]
    Start(PathBuf, #[source] io::Error),
    #[error("{}: {status}: {said}", program.display())]
    Failed { program: PathBuf, status: ExitStatus, said: String },
}

#[allow(clippy::disallowed_methods)] // An absolute path, no shell; the helper that calls it has a time-out.
pub fn run_detached(program: &Path, args: &[&OsStr]) -> Result<(), DetachedError> {
    let own = || program.to_owned();
    let errors = memfd_create(c"errors", MFdFlags::MFD_CLOEXEC);
    let mut errors = File::from(errors.map_err(|errno| DetachedError::Memory(own(), errno))?);
    let shared = errors.try_clone().map_err(|error| DetachedError::Start(own(), error))?;
    let status = Command::new(program)
        .args(args)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(shared)
        .status()
        .map_err(|error| DetachedError::Start(own(), error))?;
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    let read = errors.rewind().and_then(|()| errors.take(MAX_OUTPUT).read_to_end(&mut said));
    let said = match read {
        Ok(_) => String::from_utf8_lossy(&said).trim().to_owned(),
        Err(error) => format!("what it says is not known: {error}"),
    };
    Err(DetachedError::Failed { program: own(), status, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_program_says_is_known_and_what_it_leaves_is_not_awaited() {
        let run =
            |script: &str| run_detached(Path::new("/bin/sh"), &["-c".as_ref(), script.as_ref()]);
        // What is left behind ends when this test does something that it waits for.
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        run(&format!("cat {} >/dev/null &", pipe.display()))
            .expect("it has ended, and `cat` waits");
        std::fs::write(&pipe, "end").expect("`cat` reads it");
        let failed = run("echo no such pool >&2; exit 3").expect_err("it fails");
        assert_eq!(failed.to_string(), "/bin/sh: exit status: 3: no such pool");
    }
}
