//! A user and group id that nothing else on the host has, for one run.
//!
//! In: the host's root. Out: an id of `RESERVED`, checked against passwd, group, subuid, subgid and the
//! ids of all processes.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::root::HostRoot;
use crate::subordinate_uids;

/// Above what SSSD maps by default (up to 2000200000) and below systemd's foreign ids (2147352576);
/// systemd calls it unused (docs/UIDS-GIDS.md of systemd).
pub(crate) const RESERVED: Range<u32> = 2_130_706_432..2_143_289_344;
/// PID_MAX_LIMIT of the kernel (include/linux/threads.h): each process has an id of its own, so that
/// two runs never choose the same.
const IDS_PER_ROUND: u32 = 1 << 22;
/// Where fewer are left, runs may choose the same, and processes may have it: this many are tried.
const MAX_OTHERS: u32 = 64;

#[derive(Debug, thiserror::Error)]
pub enum IdError {
    #[error("reading {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("no user id from {} to {} that a checker could have is free: {owner} has it", RESERVED.start, RESERVED.end - 1)]
    NoneFree { owner: String },
}

/// The process that calls it supervises the run: while it exists, no other run gets the same id.
pub fn free_id(root: &HostRoot) -> Result<u32, IdError> {
    free_id_for(root, std::process::id())
}

fn free_id_for(root: &HostRoot, process: u32) -> Result<u32, IdError> {
    let assigned = assigned(root)?;
    let mut owner = assigned.last().map(|(_, owner)| owner.clone()).unwrap_or_default();
    let mut candidates = candidates(&unassigned(assigned), process);
    let proc = root.at("/proc");
    let entries = std::fs::read_dir(&proc).map_err(|error| IdError::Read(proc.clone(), error))?;
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    {
        // An error: it has exited.
        let status = std::fs::read(proc.join(format!("{pid}/status"))).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        candidates.retain(|id| {
            let is_taken = has_id(&status, *id);
            if is_taken {
                owner = format!("process {pid}");
            }
            !is_taken
        });
    }
    candidates.first().copied().ok_or(IdError::NoneFree { owner })
}

/// The ids that only runs have: those of `RESERVED` that no file assigns. An error where the files are
/// not there: then it is not known whose they are.
pub fn ids_of_runs(root: &HostRoot) -> Result<Vec<Range<u32>>, IdError> {
    let passwd = root.read("/etc/passwd");
    passwd.map_err(|error| IdError::Read(root.at("/etc/passwd"), error))?;
    Ok(unassigned(assigned(root)?))
}

/// What files assign of `RESERVED`, and to whom.
fn assigned(root: &HostRoot) -> Result<Vec<(Range<u64>, String)>, IdError> {
    let mut assigned = Vec::new();
    for (path, is_range) in [
        ("/etc/passwd", false),
        ("/etc/group", false),
        ("/etc/subuid", true),
        ("/etc/subgid", true),
    ] {
        let text = match root.read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(IdError::Read(root.at(path), error)),
        };
        for line in String::from_utf8_lossy(&text).lines() {
            let ids = if is_range { subordinate_uids::range(line) } else { single(line) };
            if let Some(ids) = ids.filter(|ids| {
                ids.start < u64::from(RESERVED.end) && ids.end > u64::from(RESERVED.start)
            }) {
                let name = line.split(':').next().unwrap_or_default();
                assigned.push((ids, format!("{name} in {path}")));
            }
        }
    }
    Ok(assigned)
}

/// The rest of `RESERVED`: its parts, ascending.
fn unassigned(mut assigned: Vec<(Range<u64>, String)>) -> Vec<Range<u32>> {
    assigned.sort_by_key(|(ids, _)| ids.start);
    let mut parts = Vec::new();
    let mut from = RESERVED.start;
    let clipped = |id: u64| {
        u32::try_from(id).map_or(RESERVED.end, |id| id.clamp(RESERVED.start, RESERVED.end))
    };
    for (ids, _) in assigned {
        parts.push(from..clipped(ids.start).max(from));
        from = from.max(clipped(ids.end));
    }
    parts.push(from..RESERVED.end);
    parts.retain(|part| !part.is_empty());
    parts
}

/// Those of a process: others than every other process has, unless fewer are left than there may be
/// processes.
fn candidates(parts: &[Range<u32>], process: u32) -> Vec<u32> {
    let count: u32 = parts.iter().map(|part| part.end - part.start).sum();
    if count == 0 {
        return Vec::new();
    }
    let first = process % IDS_PER_ROUND % count;
    let at = |mut place: u32| {
        parts.iter().find_map(|part| {
            let length = part.end - part.start;
            let id = (place < length).then(|| part.start + place);
            place = place.saturating_sub(length);
            id
        })
    };
    let own = (first..count).step_by(IDS_PER_ROUND as usize);
    let others = match count <= IDS_PER_ROUND {
        true => 1..count.min(MAX_OTHERS),
        false => 0..0,
    };
    own.chain(others.map(|more| (first + more) % count)).filter_map(at).collect()
}

/// `name:x:1000:…` of passwd(5) and group(5).
fn single(line: &str) -> Option<Range<u64>> {
    let id = line.split(':').nth(2)?.trim().parse::<u64>().ok()?;
    Some(id..id + 1)
}

/// Whether this process's user namespace has the ids of `RESERVED` (user_namespaces(7)). That of a container
/// without root on the host has few.
pub fn has_own_ids() -> bool {
    ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|map| {
        let text = std::fs::read_to_string(map).unwrap_or_default();
        [RESERVED.start, RESERVED.end - 1].map(|id| outside(&text, id)).iter().all(Option::is_some)
    })
}

/// Whether user 0 of this process's user namespace is root, whose processes have no limit on their number.
pub(super) fn is_root_of_the_host() -> bool {
    let text = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(&text, 0) == Some(0)
}

/// Which id of the outer namespace it is: lines of uid_map are `inside outside count`.
fn outside(map: &str, id: u32) -> Option<u64> {
    map.lines().find_map(|line| {
        let mut fields = line.split_whitespace().map_while(|field| field.parse::<u64>().ok());
        let (inside, outside, count) = (fields.next()?, fields.next()?, fields.next()?);
        let offset = u64::from(id).checked_sub(inside)?;
        (offset < count).then_some(outside + offset)
    })
}

/// Whether /proc/PID/status has the id: real, effective, saved, of files, or as a further group.
fn has_id(status: &str, id: u32) -> bool {
    let id = id.to_string();
    status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| matches!(*name, "Uid" | "Gid" | "Groups"))
        .any(|(_, ids)| ids.split_whitespace().any(|one| one == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with these files; process 7 has the given ids.
    fn host(files: &[(&str, &str)], ids: &str) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(at("etc")).unwrap();
        std::fs::create_dir_all(at("proc/7")).unwrap();
        std::fs::write(at("proc/7/status"), format!("Name:\tx\n{ids}\n")).unwrap();
        for (path, text) in files {
            std::fs::write(at(path), text).unwrap();
        }
        let root = HostRoot::new(dir.path());
        (dir, root)
    }

    #[test]
    fn runs_at_the_same_time_have_different_ids_of_the_reserved_range() {
        let (_dir, root) = host(&[], "Uid:\t0\t0\t0\t0");
        let ids = [1, 2, 70_000, (1 << 22) - 1].map(|pid| free_id_for(&root, pid).unwrap());
        assert_eq!(ids[0], 2_130_706_433);
        for (at, id) in ids.iter().enumerate() {
            assert!(RESERVED.contains(id) && !ids[..at].contains(id), "{ids:?}");
        }
    }

    /// The host's /etc may be a mount that this process does not have.
    #[test]
    fn without_passwd_it_is_not_known_whose_the_ids_are() {
        let (dir, root) = host(&[("/etc/passwd", "")], "Uid:\t0\t0\t0\t0");
        assert_eq!(ids_of_runs(&root).unwrap(), [RESERVED]);
        std::fs::remove_file(dir.path().join("etc/passwd")).unwrap();
        ids_of_runs(&root).unwrap_err();
    }

    #[test]
    fn an_id_of_a_user_a_group_a_range_or_a_process_is_not_taken() {
        for (path, text, free) in [
            ("/etc/passwd", "u:x:2130706433:7::/:/bin/sh\n", 2_130_706_434),
            ("/etc/group", "g:x:2130706433:\n", 2_130_706_434),
            ("/etc/subuid", "u:2130706000:1000\n", 2_130_707_001),
            ("/etc/subgid", "u:2130706433:1\nv:2130706430:5\n", 2_130_706_436),
        ] {
            let (_dir, root) = host(&[(path, text)], "");
            assert_eq!(free_id_for(&root, 1).unwrap(), free, "{path}");
        }
        let next = 2_130_706_433 + (1 << 22);
        for ids in
            ["Uid:\t0\t2130706433\t0\t0", "Gid:\t0\t0\t0\t2130706433", "Groups:\t4 2130706433 "]
        {
            let (_dir, root) = host(&[], ids);
            assert_eq!(free_id_for(&root, 1).unwrap(), next, "{ids}");
        }
    }

    #[test]
    fn ranges_of_users_take_no_more_than_themselves() {
        // As useradd(8) assigns them: one after the other.
        let usual: String =
            (0..2000).map(|user| format!("u{user}:{}:65536\n", 100_000 + user * 65_536)).collect();
        let (_dir, root) = host(&[("/etc/subuid", &usual), ("/etc/subgid", &usual)], "");
        assert_eq!(free_id_for(&root, 1).unwrap(), 2_130_706_433);
        // All but the last thousand.
        let most = format!("u:{}:{}\n", RESERVED.start, RESERVED.len() - 1000);
        let (_dir, root) = host(&[("/etc/subuid", &most)], "");
        let taken = free_id_for(&root, 1).unwrap();
        let (_dir, busy) = host(&[("/etc/subuid", &most)], &format!("Uid:\t0\t{taken}\t0\t0"));
        assert_eq!(free_id_for(&busy, 1).unwrap(), taken + 1);
        for process in [1, 999, 1000, 70_000, (1 << 22) - 1, 1 << 22] {
            let id = free_id_for(&root, process).unwrap();
            assert!((RESERVED.end - 1000..RESERVED.end).contains(&id), "{process}: {id}");
        }
    }

    #[test]
    fn an_id_is_one_of_the_outer_namespace_or_none() {
        assert_eq!(outside("         0          0 4294967295\n", 0), Some(0));
        let map = "0 1000 1\n1 100000 65536\n";
        assert_eq!(
            [0, 1, 65536, 65537].map(|id| outside(map, id)),
            [Some(1000), Some(100_000), Some(165_535), None]
        );
        assert_eq!(outside("", 0), None);
    }

    #[test]
    fn without_a_free_id_the_error_names_who_has_it() {
        let (_dir, root) = host(&[("/etc/subuid", "huge:100000:4000000000\n")], "");
        assert_eq!(
            free_id_for(&root, 1).unwrap_err().to_string(),
            "no user id from 2130706432 to 2143289343 that a checker could have is free: huge in \
             /etc/subuid has it"
        );
        let (dir, root) = host(&[], "");
        std::fs::create_dir(dir.path().join("etc/passwd")).unwrap();
        free_id_for(&root, 1).unwrap_err();
    }
}
