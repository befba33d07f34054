//! `zpool status -P -p -s POOL` as text, of OpenZFS before 2.3 (cmd/zpool/zpool_main.c,
//! print_status_config()). The caller sets LC_ALL=C.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::zpool::{MAX_VDEVS, ParseError};
use diskvitals_model::stack::{PoolScan, PoolStatus, ScanState, Vdev, VdevClass, VdevState};

/// None: the answer has no such pool.
pub fn parse(text: &str, pool: &str) -> Result<Option<PoolStatus>, ParseError> {
    let mut lines = text.lines().skip_while(|line| field(line, "pool") != Some(pool)).skip(1);
    let mut block = Vec::new();
    for line in lines.by_ref().take_while(|line| field(line, "pool").is_none()) {
        block.push(line);
    }
    if block.is_empty() {
        return Ok(None);
    }
    let errors = block.iter().find_map(|line| field(line, "errors"));
    let data_errors = match errors.ok_or(ParseError::NoErrorCount)? {
        "No known data errors" => 0,
        // `3 data errors, use '-v' for a list`
        text => text
            .split(' ')
            .next()
            .and_then(|count| count.parse().ok())
            .ok_or(ParseError::NoErrorCount)?,
    };
    let scan = block.iter().position(|line| field(line, "scan").is_some());
    let scan = scan.and_then(|at| scan_of(field(block[at], "scan")?, block.get(at + 1)));
    let config = block.iter().skip_while(|line| field(line, "config").is_none()).skip(1);
    let config = config.take_while(|line| field(line, "errors").is_none());
    let vdevs = vdevs(config.copied())?;
    match vdevs.is_empty() {
        true => Err(ParseError::NoVdevs),
        false => Ok(Some(PoolStatus { vdevs, data_errors, scan })),
    }
}

/// The value of `  pool: tank`.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.trim_start_matches(' ').strip_prefix(key)?.strip_prefix(':')?;
    (!line.starts_with('\t')).then(|| rest.trim())
}

/// `scrub repaired 0B in 00:00:01 with 0 errors on …`, `resilver in progress since …`.
fn scan_of(text: &str, next: Option<&&str>) -> Option<PoolScan> {
    let is_resilver = text.starts_with("resilver");
    let state = if text.contains(" in progress since ") {
        ScanState::Running
    } else if text.contains(" paused since ") {
        ScanState::Paused
    } else if text.contains(" canceled on ") {
        ScanState::Canceled
    } else if text.starts_with("scrub repaired ") || text.starts_with("resilvered ") {
        ScanState::Finished
    } else {
        return None;
    };
    let all = format!("{text} {}", next.map_or("", |line| line));
    let before = all.split(" errors").next().unwrap_or_default();
    let errors = before.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    let ended = text.rsplit_once(" on ").and_then(|(_, date)| time_of(date.trim()));
    Some(PoolScan { is_resilver, state, errors, ended })
}

/// ctime(3): zpool has no TZ, and so this machine's zone.
fn time_of(text: &str) -> Option<Timestamp> {
    let local = DateTime::strptime("%a %b %e %H:%M:%S %Y", text).ok()?;
    Some(local.to_zoned(TimeZone::system()).ok()?.timestamp())
}

/// Rows are `\t` and two blanks for each level; the pool itself is at level 0, as are the heads of the
/// groups `logs`, `cache`, `spares`, `special` and `dedup`, which are one word.
fn vdevs<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<Vdev>, ParseError> {
    let mut top: Vec<Vdev> = Vec::new();
    let mut class = VdevClass::Normal;
    let mut is_pool_next = true;
    let (mut rows, mut has_slow) = (0, false);
    for line in lines {
        let Some(row) = line.strip_prefix('\t').filter(|row| !row.trim().is_empty()) else {
            continue;
        };
        let name = row.trim_start_matches(' ');
        let level = (row.len() - name.len()) / 2;
        let words: Vec<&str> = name.split_whitespace().collect();
        if words.first() == Some(&"NAME") {
            has_slow = words.contains(&"SLOW");
            continue;
        }
        if level == 0 {
            class = match words.as_slice() {
                ["logs"] => VdevClass::Log,
                ["cache"] => VdevClass::Cache,
                ["spares"] => VdevClass::Spare,
                ["special"] => VdevClass::Special,
                ["dedup"] => VdevClass::Dedup,
                _ if is_pool_next => VdevClass::Normal,
                _ => return Err(ParseError::Row(line.to_owned())),
            };
            is_pool_next = false;
            continue;
        }
        rows += 1;
        if rows > MAX_VDEVS {
            return Err(ParseError::TooMany);
        }
        let vdev = row_of(&words, class, has_slow).ok_or(ParseError::Row(line.to_owned()))?;
        let mut siblings = &mut top;
        for _ in 1..level {
            siblings = match siblings.last_mut() {
                Some(parent) => &mut parent.children,
                None => return Err(ParseError::Row(line.to_owned())),
            };
        }
        siblings.push(vdev);
    }
    Ok(top)
}

fn row_of(words: &[&str], class: VdevClass, has_slow: bool) -> Option<Vdev> {
    let [name, state, rest @ ..] = words else {
        return None;
    };
    // A spare has no counts; the group of a vdev has no slow ones.
    let counts = rest.iter().take(if has_slow { 4 } else { 3 });
    let counts: Vec<u64> =
        counts.map_while(|word| if *word == "-" { Some(0) } else { word.parse().ok() }).collect();
    let count = |at: usize| counts.get(at).copied().unwrap_or(0);
    Some(Vdev {
        name: (*name).to_owned(),
        class,
        guid: name.parse().ok(),
        path: name.starts_with('/').then(|| (*name).to_owned()),
        state: VdevState::of_word(state),
        note: rest.get(counts.len()..).unwrap_or_default().join(" "),
        read_errors: count(0),
        write_errors: count(1),
        checksum_errors: count(2),
        slow_ios: count(3),
        children: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEGRADED: &str = "  pool: tank
 state: DEGRADED
status: One or more devices could not be used because the label is missing or
\tinvalid.  Sufficient replicas exist for the pool to continue
action: Replace the device using 'zpool replace'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
  scan: scrub repaired 0B in 00:00:01 with 2 errors on Sat Nov 28 20:00:00 2026
config:

\tNAME                     STATE     READ WRITE CKSUM  SLOW
\ttank                     DEGRADED     0     0     0     -
\t  raidz1-0               DEGRADED     0     0     0     -
\t    /dev/sdb1            ONLINE       0     0    12     0
\t    spare-1              DEGRADED     0     0     0     -
\t      9001               UNAVAIL      0     0     0     0  was /dev/sdc1
\t      /dev/sdx1          ONLINE       0     0     0     3
\t    /dev/sdd1            FAULTED      7   500     0     0  too many errors
\tlogs\t
\t  /dev/nvme0n1p1         ONLINE       0     0     0     0
\tspares
\t  /dev/sdx1              INUSE     currently in use

errors: 3 data errors, use '-v' for a list
";

    fn row(vdev: &Vdev) -> String {
        let children: Vec<String> = vdev.children.iter().map(row).collect();
        let Vdev { name, read_errors: r, write_errors: w, checksum_errors: c, slow_ios, .. } = vdev;
        let state = vdev.state.map(|it| format!("{it:?}")).unwrap_or_default();
        format!("{name} {state} {r}/{w}/{c}/{slow_ios} {}[{}]", vdev.note, children.join(", "))
    }

    #[test]
    fn members_groups_counts_and_what_is_said_of_a_member_are_read() {
        let status = parse(DEGRADED, "tank").unwrap().unwrap();
        let rows: Vec<String> =
            status.vdevs.iter().map(|it| format!("{:?} {}", it.class, row(it))).collect();
        assert_eq!(
            rows,
            [
                "Normal raidz1-0 Degraded 0/0/0/0 [/dev/sdb1 Online 0/0/12/0 [], spare-1 Degraded 0/0/0/0 [9001 Unavail 0/0/0/0 was /dev/sdc1[], /dev/sdx1 Online 0/0/0/3 []], /dev/sdd1 Faulted 7/500/0/0 too many errors[]]",
                "Log /dev/nvme0n1p1 Online 0/0/0/0 []",
                "Spare /dev/sdx1 InUse 0/0/0/0 currently in use[]",
            ]
        );
        assert_eq!(status.vdevs[0].children[1].children[0].guid, Some(9001));
        let ended = jiff::civil::date(2026, 11, 28).at(20, 0, 0, 0);
        let ended = Some(ended.to_zoned(TimeZone::system()).unwrap().timestamp());
        let scan = PoolScan { is_resilver: false, state: ScanState::Finished, errors: 2, ended };
        assert_eq!((status.data_errors, status.scan), (3, Some(scan)));
    }

    #[test]
    fn of_several_pools_the_named_one_is_read_also_with_a_blank_in_its_name() {
        let text = "  pool: my pool
 state: ONLINE
config:

\tNAME        STATE     READ WRITE CKSUM
\tmy pool     ONLINE       0     0     0
\t  mirror-0  ONLINE       0     0     0
\t    /dev/sda  ONLINE       0     0     0
\t    /dev/sdb  ONLINE       0     0     0

errors: No known data errors

";
        let both = format!("{DEGRADED}\n{text}");
        let status = parse(&both, "my pool").unwrap().unwrap();
        assert_eq!((status.vdevs.len(), status.data_errors, status.scan), (1, 0, None));
        assert_eq!(parse(&both, "other").unwrap(), None);
    }

    #[test]
    fn each_form_of_the_scan_line_is_understood() {
        let scan = |text: &str, next: &str| {
            scan_of(text, Some(&next)).map(|it| (it.is_resilver, it.state, it.errors))
        };
        let progress = "\t1.2G scanned at 1M/s";
        for (text, expected) in [
            ("none requested", None),
            ("scrub repaired 0B in 1h with 0 errors on Sat", Some((false, ScanState::Finished, 0))),
            ("scrub repaired 0B in 1h with 5 errors on Sat", Some((false, ScanState::Finished, 5))),
            ("resilvered 1G in 1h with 0 errors on Sat", Some((true, ScanState::Finished, 0))),
            (
                "resilvered (mirror-0) 1G in 1h with 0 errors on Sat",
                Some((true, ScanState::Finished, 0)),
            ),
            ("scrub canceled on Sat", Some((false, ScanState::Canceled, 0))),
            ("scrub paused since Sat", Some((false, ScanState::Paused, 0))),
            ("scrub in progress since Sat", Some((false, ScanState::Running, 0))),
            ("resilver in progress since Sat", Some((true, ScanState::Running, 0))),
        ] {
            assert_eq!(scan(text, progress), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_that_ends_early_is_an_error() {
        for at in ["errors:", "\t  raidz1-0"] {
            let cut = DEGRADED.split(at).next().unwrap();
            assert!(parse(cut, "tank").is_err(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(junk in "(\t| |[a-z0-9:-]{1,8}|\n){0,60}") {
            let text = format!("  pool: tank\nconfig:\n{junk}\nerrors: No known data errors\n");
            let _parsed = (parse(&text, "tank"), parse(&junk, "tank"));
        }
    }
}
