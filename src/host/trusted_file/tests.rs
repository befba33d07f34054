use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A directory of this test, and who may change what is in it. Its group is unknown to the databases.
fn place() -> (tempfile::TempDir, Trusted) {
    let dir = tempfile::tempdir().unwrap();
    let trusted = Trusted {
        passwd: dir.path().join("passwd"),
        group: dir.path().join("group"),
        groups: BTreeSet::new(),
        ..Trusted::of_this_process()
    };
    (dir, trusted)
}

fn file(path: &Path, mode: u32) {
    std::fs::write(path, "text").unwrap();
    set_mode(path, mode);
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal(path: &Path, trusted: &Trusted) -> String {
    let error = open_as(path, trusted).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    error.to_string()
}

#[test]
fn a_file_or_directory_that_others_may_write_is_refused_with_what_to_do() {
    let (dir, trusted) = place();
    let (folder, path) = (dir.path().join("folder"), dir.path().join("folder/file"));
    std::fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o755);
    file(&path, 0o644);
    let mut text = String::new();
    io::Read::read_to_string(&mut open_as(&path, &trusted).unwrap(), &mut text).unwrap();
    assert_eq!(text, "text");

    open_as(Path::new("/dev/null"), &trusted).unwrap();
    // A pipe of the shell's, as /dev/fd/63: its content may come after it was opened.
    let (reading, writing) = nix::unistd::pipe().unwrap();
    let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reading));
    let mut opened = open_as(Path::new(&pipe), &trusted).unwrap();
    let later = std::thread::spawn(move || io::Write::write_all(&mut File::from(writing), b"late"));
    let mut late = String::new();
    io::Read::read_to_string(&mut opened, &mut late).unwrap();
    later.join().unwrap().unwrap();
    assert_eq!(late, "late");

    set_mode(&path, 0o646);
    let (uid, gid) = (nix::unistd::geteuid(), std::fs::metadata(&path).unwrap().gid());
    let shown = path.display();
    assert_eq!(
        refusal(&path, &trusted),
        format!(
            "{shown} has mode 0646 (owner uid {uid}, gid {gid}), so that others could change what this \
             process does: take their right to write (`chmod go-w {shown}`)"
        )
    );
    set_mode(&path, 0o644);
    set_mode(&folder, 0o757);
    let shown = format!("{} has mode 0757", folder.display());
    assert!(refusal(&path, &trusted).starts_with(&shown));
    // Others may make files in it, and not replace this one.
    set_mode(&folder, 0o1777);
    open_as(&path, &trusted).unwrap();
}

#[test]
fn another_owner_is_refused_and_a_link_is_followed_like_the_kernel_does() {
    let (dir, trusted) = place();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("..2026")).unwrap();
    file(&at("..2026/token"), 0o440);
    // A mounted Secret.
    symlink("..2026", at("..data")).unwrap();
    symlink("..data/token", at("token")).unwrap();
    open_as(&at("token"), &trusted).unwrap();
    symlink(at("..data/../..2026/./token"), at("far")).unwrap();
    open_as(&at("far"), &trusted).unwrap();
    // What is behind the link counts.
    set_mode(&at("..2026"), 0o777);
    assert!(refusal(&at("token"), &trusted).contains("/..2026 has mode 0777"));
    symlink("loop", at("loop")).unwrap();
    assert_eq!(open_as(&at("loop"), &trusted).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    assert_eq!(open_as(&at("none"), &trusted).unwrap_err().kind(), io::ErrorKind::NotFound);
    let nobody = Trusted { users: [4_000_001].into(), ..trusted };
    let text = refusal(&at("token"), &nobody);
    assert!(
        text.starts_with("/ belongs to uid 0") && text.contains("or run this as that user"),
        "{text}"
    );
    let inside = Trusted { outside: Some(0), ..nobody };
    let text = refusal(&at("token"), &inside);
    assert!(
        text.starts_with(
            "/ belongs to a user outside this process's user namespace (shown as uid 0)"
        ),
        "{text}"
    );
}

#[test]
fn a_link_of_procfs_leads_to_the_open_file_itself() {
    let (dir, trusted) = place();
    let read = |path: &str| {
        let mut text = String::new();
        io::Read::read_to_string(&mut open_as(Path::new(path), &trusted)?, &mut text)?;
        Ok::<_, io::Error>(text)
    };
    let path = dir.path().join("file");
    file(&path, 0o644);
    let opened = File::open(&path).unwrap();
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read(&link).unwrap(), "text");
    // The path that the link shows is another file now.
    file(&path.with_file_name("file (deleted)"), 0o666);
    assert_eq!(read(&link).unwrap(), "text");
    opened.set_permissions(std::fs::Permissions::from_mode(0o646)).unwrap();
    assert!(refusal(Path::new(&link), &trusted).contains(" has mode 0646"));

    // A memfd has mode 0777 and no path; one that another user has made is that user's.
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut memory = File::from(nix::sys::memfd::memfd_create("config", flags).unwrap());
    io::Write::write_all(&mut memory, b"in memory").unwrap();
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    assert_eq!(memory.metadata().unwrap().mode() & 0o777, 0o777);
    assert_eq!(read(&link).unwrap(), "in memory");
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::fchown(&memory, Some(4_000_001), None).unwrap();
        assert!(refusal(Path::new(&link), &trusted).contains(" belongs to uid 4000001 "));
    }

    // Through a directory, and above it.
    file(&dir.path().join("other"), 0o644);
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    set_mode(&dir.path().join("folder"), 0o755);
    let folder = File::open(dir.path().join("folder")).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
    assert_eq!(read(&format!("/proc/self/fd/{number}/../other")).unwrap(), "text");
    assert_eq!(
        read(&format!("/proc/self/root/../{}/other", dir.path().display())).unwrap(),
        "text"
    );
}

#[test]
fn a_group_may_write_if_all_its_members_may_anyway() {
    let (_dir, mut trusted) = place();
    trusted.users = [0, 1000].into();
    let write = |trusted: &Trusted, users: &str, groups: &str| {
        std::fs::write(&trusted.passwd, users).unwrap();
        std::fs::write(&trusted.group, groups).unwrap();
    };
    assert!(trusted.has_only_trusted_members(0));
    // Without these files nobody is known: only a group of this process, as that of a pod.
    assert!(!trusted.has_only_trusted_members(7));
    trusted.groups = [7].into();
    assert!(trusted.has_only_trusted_members(7));
    // A developer's own group, and Debian's staff.
    let users = "root:x:0:0::/:\ndev:x:1000:1000::/:\neve:x:1001:1001::/:\n";
    write(&trusted, users, "dev:x:1000:dev\nstaff:x:50:\nteam:x:60:dev,eve\n");
    assert!(trusted.has_only_trusted_members(1000));
    assert!(trusted.has_only_trusted_members(50));
    assert!(!trusted.has_only_trusted_members(60));
    // It is another user's own, also if this process has it.
    trusted.groups = [1001].into();
    assert!(!trusted.has_only_trusted_members(1001));
    // An unknown group that this process does not have: a directory service may know it.
    assert!(!trusted.has_only_trusted_members(70));
}
