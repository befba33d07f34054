//! btrfs: the last scrub of each member, as `btrfs scrub` of btrfs-progs records it
//! (/var/lib/btrfs/scrub.status.UUID, cmds/scrub.c). The kernel keeps no record of a scrub that has
//! ended. Read only while a filesystem counts errors, while a finding depends on it, and once a day: the
//! file is on a disk.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::counters::block_reading;
use diskvitals_host::root::HostRoot;
use diskvitals_model::counters::CounterReading;

/// More than a scrub of a thousand devices writes.
const MAX_BYTES: usize = 1 << 20;
const STILL_WRITTEN: Duration = Duration::from_secs(60);
/// What btrfs-progs counts in a scrub besides what it has read.
const ERRORS: [&str; 6] = [
    "read_errors",
    "csum_errors",
    "verify_errors",
    "super_errors",
    "malloc_errors",
    "uncorrectable_errors",
];

/// One reading per member that was scrubbed, and of each member, without a value, if there is no record.
/// `members`: device ids and kernel names.
pub fn read(
    root: &HostRoot,
    uuid: &str,
    members: &BTreeMap<String, String>,
) -> io::Result<Vec<CounterReading>> {
    let path = format!("/var/lib/btrfs/scrub.status.{uuid}");
    let reading = |id: String, values| {
        let device = members.get(&id)?;
        let file = format!("{path}, device {id}");
        let details = BTreeMap::from([("devid".to_owned(), id)]);
        Some(block_reading(device, "btrfs-scrub", file, values, details))
    };
    let is_written = is_written(root, &path);
    let text = match root.read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let ids = members.keys().cloned();
            return Ok(ids.filter_map(|id| reading(id, BTreeMap::new())).collect());
        }
        Err(error) => return Err(error),
    };
    if text.len() > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let text = String::from_utf8_lossy(&text);
    let found = parse(&text, uuid).into_iter().map(|(id, mut values)| {
        let is_over = values["finished"] == 1 || values["canceled"] == 1;
        values.insert("running".to_owned(), u64::from(is_written && !is_over));
        (id, values)
    });
    Ok(found.filter_map(|(id, values)| reading(id, values)).collect())
}

/// A scrub that runs writes its record every 5 s. One that died leaves it as it was.
fn is_written(root: &HostRoot, path: &str) -> bool {
    let modified = std::fs::metadata(root.at(path)).and_then(|data| data.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < STILL_WRITTEN))
}

/// Lines of `UUID:DEVID|name:value|…`, after `scrub status:1`. Without a start or an end, a line is
/// left out: the scrub is not over, or the format is another one.
fn parse(text: &str, uuid: &str) -> Vec<(String, BTreeMap<String, u64>)> {
    let mut lines = text.lines();
    if lines.next() != Some("scrub status:1") {
        return Vec::new();
    }
    let line = |line: &str| {
        let mut fields = line.split('|');
        let (of, id) = fields.next()?.split_once(':')?;
        let values: BTreeMap<&str, u64> = fields
            .map(|field| {
                let (name, value) = field.split_once(':')?;
                Some((name, value.trim().parse().ok()?))
            })
            .collect::<Option<_>>()?;
        let value = |name: &str| values.get(name).copied();
        let errors: u64 = ERRORS.into_iter().filter_map(value).sum();
        let (started, finished, canceled) =
            (value("t_start")?, value("finished")?, value("canceled")?);
        let mut found = BTreeMap::from([
            ("started".to_owned(), started),
            ("finished".to_owned(), finished),
            ("canceled".to_owned(), canceled),
            ("errors".to_owned(), errors),
        ]);
        // Of one that went on after a pause, `duration` has its parts, without the pause: this may be
        // later than the end by what ran before the pause, never earlier.
        let begun = started.max(value("t_resumed").unwrap_or_default());
        let ended = value("duration").and_then(|duration| begun.checked_add(duration));
        if let Some(ended) = ended.filter(|_| finished == 1 && canceled == 0) {
            found.insert("ended".to_owned(), ended);
        }
        (of == uuid).then(|| (id.to_owned(), found))
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "6b1d3b1e-7a57-4b61-8e0e-1b9a3d1f8a11";

    #[test]
    fn each_member_has_the_start_the_end_and_the_errors_of_its_last_scrub() {
        let line = |id: u32, csum: u32, finished: u32, resumed: u32| {
            format!(
                "{UUID}:{id}|data_extents_scrubbed:3|tree_extents_scrubbed:9|data_bytes_scrubbed:4096|tree_bytes_scrubbed:147456|read_errors:0|csum_errors:{csum}|verify_errors:0|no_csum:0|csum_discards:0|super_errors:0|malloc_errors:0|uncorrectable_errors:0|corrected_errors:{csum}|last_physical:1|t_start:1700000000|t_resumed:{resumed}|duration:7|canceled:0|finished:{finished}\n"
            )
        };
        let text = format!(
            "scrub status:1\n{}{}{UUID}:3|t_start:x\n{}",
            line(1, 0, 1, 0),
            line(2, 4, 0, 0),
            line(4, 0, 1, 1_700_000_500)
        );
        let found = parse(&text, UUID);
        let values = |at: usize| {
            let (id, values) = &found[at];
            (id.as_str(), values["started"], values["finished"], values["errors"])
        };
        assert_eq!(
            (values(0), values(1), found.len()),
            (("1", 1_700_000_000, 1, 0), ("2", 1_700_000_000, 0, 4), 3)
        );
        let ends: Vec<_> = found.iter().map(|(_, values)| values.get("ended").copied()).collect();
        assert_eq!(ends, [Some(1_700_000_007), None, Some(1_700_000_507)]);
        assert_eq!(parse(&text, "another"), []);
        assert_eq!(parse("scrub status:2\n", UUID), []);
    }
}
