//! Parses lines of device-mapper status, `START LENGTH TYPE STATUS`. Pure.

use diskvitals_finding::dev::DevNo;
use diskvitals_model::block::{Extent, LayerState};
use diskvitals_model::stack::{
    BlockCache, DmIntegrity, DmRaid, Multipath, MultipathPath, ThinPool,
};

/// Contains the line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device-mapper status `{0}` makes no sense")]
pub struct StatusParseError(pub String);

/// The state of a device is that of its first target that has a state.
pub fn parse(lines: &str) -> Result<LayerState, StatusParseError> {
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let bad = || StatusParseError(line.chars().take(200).collect());
        let mut words = Tokens(line.split_whitespace());
        let (_start, _length) = (words.number().ok_or_else(bad)?, words.number().ok_or_else(bad)?);
        let state = match words.word().ok_or_else(bad)? {
            "thin-pool" => parse_thin_pool(words, line),
            "multipath" => parse_multipath(words, line),
            "raid" => parse_raid(words, line),
            "vdo" => parse_vdo(words, line),
            "cache" => parse_cache(words, line),
            "writecache" => parse_writecache(words, line),
            "integrity" => parse_integrity(words, line),
            _ => continue,
        };
        return state.ok_or_else(bad);
    }
    Ok(LayerState::Plain)
}

/// No real logical volume has more pieces; a longer mapping is dropped.
const MAX_EXTENTS: usize = 1024;

/// Whether there is at least one target, and all are linear.
pub fn is_all_linear(lines: &str) -> bool {
    let mut kinds = lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split_whitespace().nth(2))
        .peekable();
    kinds.peek().is_some() && kinds.all(|kind| kind == Some("linear"))
}

/// `START LENGTH linear MAJOR:MINOR OFFSET` (linear_status(), drivers/md/dm-linear.c). Without
/// lines, the mapping is unknown.
pub fn parse_linear(lines: &str) -> Result<LayerState, StatusParseError> {
    let mut extents = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let extent = || {
            let mut words = Tokens(line.split_whitespace());
            let (start, length) = (words.number()?, words.number()?);
            words.word().filter(|kind| *kind == "linear")?;
            Some(Extent {
                start,
                length,
                dev: words.word()?.parse().ok()?,
                offset: words.number()?,
            })
        };
        extents.push(extent().ok_or_else(|| StatusParseError(line.chars().take(200).collect()))?);
    }
    Ok(if extents.is_empty() || extents.len() > MAX_EXTENTS {
        LayerState::Plain
    } else {
        LayerState::Linear { extents }
    })
}

struct Tokens<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Tokens<'a> {
    fn word(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn number(&mut self) -> Option<u64> {
        self.word()?.parse().ok()
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        (0..count).try_for_each(|_| self.word().map(drop))
    }

    fn used_of_total(&mut self) -> Option<(u64, u64)> {
        let (used, total) = self.word()?.split_once('/')?;
        Some((used.parse().ok()?, total.parse().ok()?))
    }
}

/// `<transaction> <used>/<total metadata> <used>/<total data> <held root> ro|rw|out_of_data_space
/// <discards> <when full> needs_check|- <low mark>`, or only `Fail` or `Error` (pool_status(),
/// drivers/md/dm-thin.c).
fn parse_thin_pool(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    let status_line = line.trim().to_owned();
    let transaction = words.word()?;
    if matches!(transaction, "Fail" | "Error") {
        return Some(LayerState::Thin(ThinPool {
            mode: transaction.to_owned(),
            status_line,
            ..ThinPool::default()
        }));
    }
    transaction.parse::<u64>().ok()?;
    let (metadata_used, metadata_total) = words.used_of_total()?;
    let (data_used, data_total) = words.used_of_total()?;
    words.word()?;
    let mode = words.word()?.to_owned();
    let needs_check = words.0.any(|word| word == "needs_check");
    Some(LayerState::Thin(ThinPool {
        metadata_used,
        metadata_total,
        data_used,
        data_total,
        mode,
        needs_check,
        is_vdo: false,
        status_line,
    }))
}

/// `<n features…> <n handler…> <groups> <current>`, then for each group `<A|E|D> <n selector…>
/// <paths> <words a path>`, then for each path `<dev> <A|F> <failures> <selector's words>`
/// (multipath_status(), drivers/md/dm-mpath.c).
fn parse_multipath(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    for _ in 0..2 {
        let count = words.number()?;
        words.skip(count)?;
    }
    let groups = words.number()?;
    words.number()?;
    let mut paths = Vec::new();
    for _ in 0..groups {
        words.word().filter(|state| matches!(*state, "A" | "E" | "D"))?;
        let selector = words.number()?;
        words.skip(selector)?;
        let (count, words_a_path) = (words.number()?, words.number()?);
        for _ in 0..count {
            let dev = words.word()?.parse().ok()?;
            let active = match words.word()? {
                "A" => true,
                "F" => false,
                _ => return None,
            };
            paths.push(MultipathPath { dev, active, fail_count: words.number()? });
            words.skip(words_a_path)?;
        }
    }
    Some(LayerState::Multipath(Multipath { paths, status_line: line.trim().to_owned() }))
}

/// `<level> <legs> <health, a character a leg> <ratio> <action> <mismatches> …` (dm-raid.rst,
/// "Status Output"). Old kernels end after the ratio.
fn parse_raid(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    let level = words.word()?.to_owned();
    let legs = words.number()?;
    let health = words.word()?.to_owned();
    if u64::try_from(health.len()).ok()? != legs
        || !health.chars().all(|c| matches!(c, 'A' | 'a' | 'D' | '-'))
    {
        return None;
    }
    let synced = Some(words.used_of_total()?);
    let sync_action = words.word().map(str::to_owned);
    Some(LayerState::DmRaid(DmRaid {
        level,
        health,
        sync_action,
        synced,
        mismatches: words.number(),
        status_line: line.trim().to_owned(),
        layout: None,
    }))
}

/// `<device> normal|recovering|read-only <recovery> <index> <compression> <used> <total>`, in blocks of
/// 4 KiB (vdo.rst, "Status").
fn parse_vdo(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    words.word()?;
    let mode = match words.word()? {
        "normal" | "recovering" => "rw",
        "read-only" => "ro",
        _ => return None,
    };
    words.skip(3)?;
    Some(LayerState::Thin(ThinPool {
        data_used: words.number()?,
        data_total: words.number()?,
        mode: mode.to_owned(),
        is_vdo: true,
        status_line: line.trim().to_owned(),
        ..ThinPool::default()
    }))
}

/// `<metadata block size> <used>/<total metadata> <block size> <used>/<total> <read hits> <misses>
/// <write hits> <misses> <demotions> <promotions> <dirty> … rw|ro needs_check|-`, or only `Fail` or
/// `Error` (cache_status(), drivers/md/dm-cache-target.c).
fn parse_cache(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    let first = words.word()?;
    let (dirty, fault) = match first {
        "Fail" | "Error" => (0, Some(first)),
        _ => {
            first.parse::<u64>().ok()?;
            words.used_of_total()?;
            words.number()?;
            words.used_of_total()?;
            words.skip(6)?;
            let dirty = words.number()?;
            (dirty, words.0.rev().take(2).find(|word| matches!(*word, "needs_check" | "ro")))
        }
    };
    Some(cache("dm-cache", dirty, fault.map(str::to_owned), line))
}

/// `<error> <blocks> <free> <being written back> …` (writecache.rst, "Status"). A block is free once it
/// was written back.
fn parse_writecache(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    let error: i64 = words.word()?.parse().ok()?;
    let (blocks, free) = (words.number()?, words.number()?);
    let fault = (error != 0).then(|| format!("error {error}"));
    Some(cache("dm-writecache", blocks.checked_sub(free)?, fault, line))
}

fn cache(kind: &str, dirty: u64, fault: Option<String>, line: &str) -> LayerState {
    LayerState::Cache(BlockCache {
        kind: kind.to_owned(),
        devices: Vec::new(),
        is_dirty: dirty > 0,
        fault,
        status_line: line.trim().to_owned(),
    })
}

/// `<mismatches> <sectors of data> <position of the recalculation>|-` (dm-integrity.rst, "Status line").
fn parse_integrity(mut words: Tokens<'_>, line: &str) -> Option<LayerState> {
    let mismatches = words.number()?;
    words.number()?;
    Some(LayerState::Integrity(DmIntegrity { mismatches, status_line: line.trim().to_owned() }))
}

/// The devices of a cache, from its table: `cache METADATA CACHE ORIGIN …` (cache.rst), `writecache
/// p|s ORIGIN CACHE …` (writecache.rst).
pub(crate) fn parse_cache_devices(table: &str) -> Vec<DevNo> {
    let words: Vec<&str> = table.split_whitespace().collect();
    let devices = match words.get(2).copied() {
        Some("cache") => words.get(3..5),
        Some("writecache") => words.get(5..6),
        _ => None,
    };
    devices.unwrap_or_default().iter().filter_map(|dev| dev.parse().ok()).collect()
}

/// md's layout word of a raid10, from its table: `… raid10_copies N … raid10_format near|far|offset …`
/// (raid10_format_to_md_layout(), drivers/md/dm-raid.c).
pub(crate) fn parse_raid10_layout(table: &str) -> Option<u32> {
    let line = table.lines().find(|line| !line.trim().is_empty())?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        words.get(at + 1).copied()
    };
    let copies: u32 = match after("raid10_copies") {
        Some(copies) => copies.parse().ok().filter(|copies| *copies < 0x100)?,
        None => 2,
    };
    let format = after("raid10_format").or_else(|| words.get(3)?.strip_prefix("raid10_"));
    let far_sets = match words.contains(&"raid10_use_near_sets") {
        true => 0,
        false => 1 << 17,
    };
    Some(match format.unwrap_or("near") {
        "far" => far_sets | copies << 8 | 1,
        "offset" => 1 << 16 | far_sets | copies << 8 | 1,
        _ => 1 << 8 | copies,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thin_pool_usage_is_read() {
        let line = "0 1953 thin-pool 1 19/4096 3/244 - out_of_data_space discard_passdown queue_if_no_space needs_check 1024";
        let pool = ThinPool {
            metadata_used: 19,
            metadata_total: 4096,
            data_used: 3,
            data_total: 244,
            mode: "out_of_data_space".into(),
            needs_check: true,
            is_vdo: false,
            status_line: line.into(),
        };
        assert_eq!(parse(line), Ok(LayerState::Thin(pool)));
    }

    #[test]
    fn vdo_is_read_as_a_pool() {
        let pool = |line: &str| match parse(line) {
            Ok(LayerState::Thin(pool)) if pool.is_vdo => {
                (pool.mode, pool.data_used, pool.data_total)
            }
            other => panic!("{other:?}"),
        };
        let line = "0 209715200 vdo 253:4 normal - online online 1029 131072";
        assert_eq!(pool(line), ("rw".to_owned(), 1029, 131072));
        let line = "0 209715200 vdo 253:4 read-only - offline online 131072 131072";
        assert_eq!(pool(line), ("ro".to_owned(), 131072, 131072));
    }

    #[test]
    fn a_cache_says_whether_it_has_writes_of_its_own_and_whether_it_works() {
        for (line, is_dirty, fault) in [
            (
                "0 8 cache 8 27/1024 128 83/1024 1 2 3 4 5 6 7 2 metadata2 writeback 2 migration_threshold 2048 smq 0 rw - ",
                true,
                None,
            ),
            (
                "0 8 cache 8 27/1024 128 83/1024 1 2 3 4 5 6 0 1 writethrough 2 migration_threshold 2048 smq 0 ro needs_check ",
                false,
                Some("needs_check"),
            ),
            (
                "0 8 cache 8 27/1024 128 83/1024 1 2 3 4 5 6 0 1 writethrough 2 migration_threshold 2048 smq 0 ro - ",
                false,
                Some("ro"),
            ),
            ("0 8 cache Fail", false, Some("Fail")),
            ("0 8 writecache 0 1024 1000 0 1 2 3", true, None),
            ("0 8 writecache 0 1024 1024 0", false, None),
            ("0 8 writecache -5 1024 1024 0", false, Some("error -5")),
        ] {
            let Ok(LayerState::Cache(cache)) = parse(line) else { panic!("{line}") };
            assert_eq!((cache.is_dirty, cache.fault.as_deref()), (is_dirty, fault), "{line}");
        }
        let devices = |minors: &[u32]| -> Vec<DevNo> {
            minors.iter().map(|minor| DevNo::new(253, *minor)).collect()
        };
        for (table, minors) in [
            ("0 8 cache 253:3 253:2 253:4 128 1 writeback smq 0", &[3, 2][..]),
            ("0 8 writecache s 253:4 253:5 4096 0", &[5]),
            ("", &[]),
        ] {
            assert_eq!(parse_cache_devices(table), devices(minors), "{table}");
        }
    }

    #[test]
    fn dm_integrity_counts_its_mismatches() {
        for (line, mismatches) in
            [("0 8 integrity 3 16777216000 -", 3), ("0 8 integrity 0 16777216000 4096", 0)]
        {
            let Ok(LayerState::Integrity(it)) = parse(line) else { panic!("{line}") };
            assert_eq!((it.mismatches, it.status_line.as_str()), (mismatches, line));
        }
        assert!(parse("0 8 integrity - 8 -").is_err());
    }

    #[test]
    fn a_failed_pool_has_no_usage() {
        let Ok(LayerState::Thin(pool)) = parse("0 1953 thin-pool Fail") else { panic!("a pool") };
        assert_eq!((pool.mode.as_str(), pool.data_total), ("Fail", 0));
    }

    #[test]
    fn each_path_of_each_group_is_read() {
        let line = "0 2097152 multipath 2 0 0 0 2 1 A 0 1 2 8:16 A 0 0 1 E 0 1 2 8:32 F 3 0 1 ";
        let Ok(LayerState::Multipath(multipath)) = parse(line) else { panic!("paths") };
        let path = |minor, active, fail_count| MultipathPath {
            dev: DevNo::new(8, minor),
            active,
            fail_count,
        };
        assert_eq!(multipath.paths, [path(16, true, 0), path(32, false, 3)]);
    }

    #[test]
    fn a_multipath_without_any_path_is_no_error() {
        let Ok(LayerState::Multipath(multipath)) = parse("0 8 multipath 2 0 0 0 0 0") else {
            panic!("paths")
        };
        assert!(multipath.paths.is_empty());
    }

    #[test]
    fn raid_leg_health_is_read() {
        let line = "0 1960893648 raid raid4 5 AAADA 2/490221568 recover 0 0 -";
        let Ok(LayerState::DmRaid(DmRaid { level, health, sync_action, .. })) = parse(line) else {
            panic!("a raid")
        };
        assert_eq!(
            (level.as_str(), health.as_str(), sync_action.as_deref()),
            ("raid4", "AAADA", Some("recover"))
        );
    }

    #[test]
    fn the_table_of_a_raid10_gives_its_layout() {
        for (table, expected) in [
            ("0 8 raid raid10 3 64 raid10_copies 3 4 - 253:1 - 253:2 - 253:3 - 253:4", Some(0x103)),
            ("0 8 raid raid10 1 64 4 - 253:1 - 253:2 - 253:3 - 253:4", Some(0x102)),
            ("0 8 raid raid10_far 3 64 raid10_copies 2 4 -", Some(0x20201)),
            ("0 8 raid raid10 5 64 raid10_copies 2 raid10_format offset 4 -", Some(0x30201)),
            ("0 8 raid raid10 3 64 raid10_copies many 4 -", None),
            ("", None),
        ] {
            assert_eq!(parse_raid10_layout(table), expected, "{table}");
        }
    }

    #[test]
    fn a_linear_table_gives_each_extent() {
        let table = "0 100 linear 8:1 2048\n100 50 linear 8:17 4096\n";
        let piece = |start, length, minor, offset| Extent {
            start,
            length,
            dev: DevNo::new(8, minor),
            offset,
        };
        assert_eq!(
            parse_linear(table),
            Ok(LayerState::Linear {
                extents: vec![piece(0, 100, 1, 2048), piece(100, 50, 17, 4096)]
            })
        );
        assert!(
            is_all_linear("0 100 linear \n100 50 linear")
                && !is_all_linear("0 8 linear \n8 8 crypt")
                && !is_all_linear("")
        );
        assert_eq!(parse_linear(""), Ok(LayerState::Plain));
        assert_eq!(
            parse_linear("0 100 crypt 8:1 0"),
            Err(StatusParseError("0 100 crypt 8:1 0".into()))
        );
    }

    #[test]
    fn anything_else_is_plain() {
        assert_eq!(parse("0 8 linear \n8 8 crypt"), Ok(LayerState::Plain));
        assert_eq!(parse(""), Ok(LayerState::Plain));
    }

    #[test]
    fn a_damaged_line_is_an_error_that_shows_it() {
        for line in [
            "0 8 thin-pool 1 19/4096",
            "0 8 multipath 2 0 0 0 1 1 A 0 2 0 8:16 A 0",
            "0 8 raid raid1 2 A 0/1",
            "0 8 vdo 253:4 normal - online online 1029",
            "0 8 cache 8 27/1024 128 83/1024 1 2 3",
            "0 8 writecache 0 8 9 0",
            "x 8 linear",
            "0 8",
        ] {
            assert_eq!(parse(line), Err(StatusParseError(line.into())));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(kind in "(thin-pool|multipath|raid|linear|vdo|cache|writecache)", rest in "([0-9AFED/:-]{1,4} ){0,20}", junk in "\\PC{0,80}") {
            let _states = (parse(&format!("0 8 {kind} {rest}")), parse(&junk));
        }
    }
}
