//! `zpool status -j --json-int -P -p POOL` (OpenZFS 2.3 and later; cmd/zpool/zpool_main.c). GUIDs are
//! larger than a float holds. Without `--json-int` numbers are text.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::zpool::{MAX_VDEVS, ParseError};
use diskvitals_model::stack::{PoolScan, PoolStatus, ScanState, Vdev, VdevClass, VdevState};

/// None: the answer has no such pool.
pub fn parse(bytes: &[u8], pool: &str) -> Result<Option<PoolStatus>, ParseError> {
    let answer: Value = serde_json::from_slice(bytes).map_err(ParseError::Json)?;
    let pools = answer.get("pools").and_then(Value::as_object).ok_or(ParseError::NoPools)?;
    let Some(pool_object) = pools.values().find(|it| text(it, "name") == Some(pool)) else {
        return Ok(None);
    };
    let mut left = MAX_VDEVS;
    let mut vdevs = Vec::new();
    let of_root = object(pool_object, "vdevs").into_iter().flat_map(Map::values);
    for root in of_root {
        for top in object(root, "vdevs").into_iter().flat_map(Map::values) {
            vdevs.push(vdev(top, class_of(top), &mut left)?);
        }
    }
    let groups = [
        ("special", VdevClass::Special),
        ("dedup", VdevClass::Dedup),
        ("logs", VdevClass::Log),
        ("l2cache", VdevClass::Cache),
        ("spares", VdevClass::Spare),
    ];
    for (key, class) in groups {
        for top in object(pool_object, key).into_iter().flat_map(Map::values) {
            vdevs.push(vdev(top, class, &mut left)?);
        }
    }
    if vdevs.is_empty() {
        return Err(ParseError::NoVdevs);
    }
    let data_errors = number(pool_object, "error_count").ok_or(ParseError::NoErrorCount)?;
    Ok(Some(PoolStatus { vdevs, data_errors, scan: pool_object.get("scan_stats").and_then(scan) }))
}

fn class_of(vdev: &Value) -> VdevClass {
    match text(vdev, "class") {
        Some("special") => VdevClass::Special,
        Some("dedup") => VdevClass::Dedup,
        Some("log") => VdevClass::Log,
        Some("l2cache") => VdevClass::Cache,
        Some("spare") => VdevClass::Spare,
        _ => VdevClass::Normal,
    }
}

fn vdev(from: &Value, class: VdevClass, left: &mut usize) -> Result<Vdev, ParseError> {
    *left = left.checked_sub(1).ok_or(ParseError::TooMany)?;
    let children = object(from, "vdevs").into_iter().flat_map(Map::values);
    let children: Result<Vec<Vdev>, ParseError> =
        children.map(|child| vdev(child, class, &mut *left)).collect();
    let children = children?;
    let count = |key| number(from, key).unwrap_or(0);
    let was = text(from, "was").map(|path| format!("was {path}"));
    Ok(Vdev {
        name: text(from, "name").unwrap_or_default().to_owned(),
        class,
        guid: number(from, "guid"),
        path: text(from, "path").map(str::to_owned),
        state: text(from, "state").and_then(VdevState::of_word),
        note: was.or_else(|| text(from, "aux").map(str::to_owned)).unwrap_or_default(),
        read_errors: count("read_errors"),
        write_errors: count("write_errors"),
        checksum_errors: count("checksum_errors"),
        slow_ios: count("slow_ios"),
        children,
    })
}

fn scan(from: &Value) -> Option<PoolScan> {
    let is_resilver = match text(from, "function")? {
        "RESILVER" => true,
        "SCRUB" => false,
        _ => return None,
    };
    let is_paused = number(from, "scrub_pause").is_some_and(|since| since > 0);
    let state = match text(from, "state")? {
        "SCANNING" if is_paused => ScanState::Paused,
        "SCANNING" => ScanState::Running,
        "FINISHED" => ScanState::Finished,
        "CANCELED" => ScanState::Canceled,
        _ => return None,
    };
    let ended = number(from, "end_time").filter(|seconds| *seconds > 0);
    let ended = ended.and_then(|seconds| Timestamp::from_second(seconds.try_into().ok()?).ok());
    Some(PoolScan { is_resilver, state, errors: number(from, "errors").unwrap_or(0), ended })
}

fn object<'a>(of: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    of.get(key)?.as_object()
}

fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of.get(key)?.as_str()
}

fn number(of: &Value, key: &str) -> Option<u64> {
    let value = of.get(key)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANSWER: &str = r#"{"output_version":{"command":"zpool status","vers_major":0,"vers_minor":1},"pools":{"tank":{"name":"tank","state":"DEGRADED","pool_guid":17002345678901234567,
 "scan_stats":{"function":"SCRUB","state":"FINISHED","end_time":1790000000,"errors":2},"error_count":3,
 "vdevs":{"tank":{"name":"tank","vdev_type":"root","state":"DEGRADED","vdevs":{"mirror-0":{"name":"mirror-0","vdev_type":"mirror","guid":9001,"state":"DEGRADED","class":"normal","vdevs":{
  "/dev/sdb1":{"name":"/dev/sdb1","vdev_type":"disk","guid":17002345678901234568,"path":"/dev/sdb1","state":"ONLINE","read_errors":0,"write_errors":"1","checksum_errors":12,"slow_ios":3},
  "/dev/sdc1":{"name":"/dev/sdc1","vdev_type":"disk","guid":9003,"path":"/dev/sdc1","state":"CANT_OPEN","not_present":1,"was":"/dev/sdc1"}}}}}},
 "logs":{"/dev/sdl":{"name":"/dev/sdl","state":"ONLINE"}},"spares":{"/dev/sdx":{"name":"/dev/sdx","state":"AVAIL"}}}}}"#;

    #[test]
    fn members_are_read_with_their_guid_beyond_a_float() {
        let status = parse(ANSWER.as_bytes(), "tank").unwrap().unwrap();
        let [mirror, log, spare] = status.vdevs.as_slice() else { panic!("{status:?}") };
        let [sdb, sdc] = mirror.children.as_slice() else { panic!("{mirror:?}") };
        assert_eq!((mirror.name.as_str(), sdb.guid), ("mirror-0", Some(17002345678901234568)));
        let counts = (sdb.read_errors, sdb.write_errors, sdb.checksum_errors, sdb.slow_ios);
        assert_eq!(counts, (0, 1, 12, 3));
        assert_eq!((sdc.state, sdc.note.as_str()), (Some(VdevState::Unavail), "was /dev/sdc1"));
        assert_eq!((log.class, spare.class), (VdevClass::Log, VdevClass::Spare));
        assert_eq!(spare.state, Some(VdevState::Available));
        let ended = Timestamp::from_second(1_790_000_000).ok();
        let scan = PoolScan { is_resilver: false, state: ScanState::Finished, errors: 2, ended };
        assert_eq!((status.data_errors, status.scan), (3, Some(scan)));
    }

    #[test]
    fn an_answer_without_what_decides_is_an_error_and_another_pool_is_none() {
        assert_eq!(parse(ANSWER.as_bytes(), "other").unwrap(), None);
        assert_eq!(parse(br#"{"pools":{}}"#, "tank").unwrap(), None);
        for text in ["", "{}", "[]", r#"{"pools":{"tank":{"name":"tank","error_count":0}}}"#] {
            assert!(parse(text.as_bytes(), "tank").is_err(), "{text}");
        }
        for at in 1..ANSWER.len() {
            assert!(parse(&ANSWER.as_bytes()[..at], "tank").is_err(), "cut at {at}");
        }
        let deep = format!("{{\"pools\":{}1{}}}", "{\"a\":".repeat(500), "}".repeat(500));
        assert!(parse(deep.as_bytes(), "tank").is_err());
    }

    proptest! {
        #[test]
        fn no_values_make_it_panic(state in "\\PC{0,12}", count in "(-?[0-9]{1,25}|null|\\[\\]|true)") {
            let text = ANSWER.replace("CANT_OPEN", &state.replace(['"', '\\'], "")).replace("12", &count);
            let _parsed = parse(text.as_bytes(), "tank");
        }
    }
}
