//! storcli is asked seldom, alone, and not again after it hung.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{CacheProtection, ReportedArray};

fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

fn needed(last_reset: Option<Timestamp>) -> StorcliRequest {
    StorcliRequest { is_needed: true, last_reset }
}

fn result(answer: Answer) -> StorcliResult {
    StorcliResult { begun: now(), answer }
}

/// The steps at these times after the start of the source.
fn step(storcli: &mut Storcli, from: Instant, after: Duration, smartctl: Smartctl) -> Step {
    storcli.step(needed(None), smartctl, from + after, now())
}

#[test]
fn a_tool_is_asked_hourly_and_alone() {
    let from = Instant::now();
    let mut storcli = Storcli::new(false, from);
    let nothing = storcli.step(StorcliRequest::default(), Smartctl::Idle, from + hours(5), now());
    assert_eq!(nothing, Step::WaitUntil(None), "no array, no tool");
    let first = from + FIRST_AFTER;
    assert_eq!(step(&mut storcli, from, hours(0), Smartctl::Idle), Step::WaitUntil(Some(first)));
    assert_eq!(step(&mut storcli, first, hours(0), Smartctl::Running), Step::HoldSmartctl);
    assert_eq!(step(&mut storcli, first, hours(0), Smartctl::Idle), Step::Ask);
    assert_eq!(step(&mut storcli, first, hours(2), Smartctl::Idle), Step::HoldSmartctl, "it runs");
    storcli.record(result(Answer::Reports(Vec::new())), first);
    let next = Step::WaitUntil(Some(first + INTERVAL));
    assert_eq!(step(&mut storcli, first, Duration::from_secs(3599), Smartctl::Idle), next);
    assert_eq!(step(&mut storcli, first, hours(1), Smartctl::Idle), Step::Ask);
}

#[test]
fn a_smartctl_that_cannot_be_killed_delays_the_tool_and_no_other_smartctl() {
    let from = Instant::now();
    let mut storcli = Storcli::new(true, from);
    let later = Step::WaitUntil(Some(from + RETRY));
    assert_eq!(step(&mut storcli, from, hours(0), Smartctl::Stuck), later);
}

#[tokio::test]
async fn after_a_time_out_no_tool_is_run_for_a_day_nor_beside_one_that_cannot_be_killed() {
    let from = Instant::now();
    let mut storcli = Storcli::new(true, from);
    assert_eq!(step(&mut storcli, from, hours(0), Smartctl::Idle), Step::Ask);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let child = UnkillableChild::watch(None, async { drop(ended.await) });
    let report = storcli.record(result(Answer::TimedOut("slow".into(), Some(child))), from);
    assert!(matches!(report, SourceUpdate::RaidReports(Observation::Failed { .. })));
    assert_eq!(storcli.error.as_deref(), Some("timed out: slow; not asked again for a day"));
    let day = Step::WaitUntil(Some(from + PAUSE));
    assert_eq!(step(&mut storcli, from, hours(23), Smartctl::Idle), day);
    let later = Step::WaitUntil(Some(from + PAUSE + RETRY));
    assert_eq!(step(&mut storcli, from, PAUSE, Smartctl::Idle), later);
    end.send(()).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(step(&mut storcli, from, PAUSE + RETRY, Smartctl::Idle), Step::Ask);
}

#[test]
fn after_a_reset_of_the_controller_no_tool_is_run_for_a_day() {
    let (from, time) = (Instant::now(), now());
    let mut storcli = Storcli::new(true, from);
    let hour_ago = time.checked_sub(hours(1)).unwrap();
    let wait = storcli.step(needed(Some(hour_ago)), Smartctl::Idle, from, time);
    assert_eq!(wait, Step::WaitUntil(Some(from + hours(23))));
    let asked = storcli.step(needed(Some(hour_ago)), Smartctl::Idle, from + hours(23), time);
    assert_eq!(asked, Step::Ask, "each reset counts once");
}

/// The answer to a script in the place of the tool, and what its directory has.
async fn answer(script: &str, timeout: Duration) -> Answer {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("storcli64");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let directory = dir.path().join("private");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("storcli.log"), "of an earlier run").unwrap();
    run(path, &directory, timeout).await
}

#[tokio::test]
async fn the_tool_runs_in_an_empty_private_directory_and_is_killed_when_it_hangs() {
    let good = r#"test "$(pwd)$(ls)" = "${0%/*}/private" && test "$*" = "/cALL show all J nolog" && echo '{"Controllers":[]}'"#;
    let got = answer(good, TIMEOUT).await;
    assert!(matches!(&got, Answer::Reports(reports) if reports.is_empty()), "{got:?}");
    let got = answer("sleep 1000", Duration::from_millis(100)).await;
    assert!(matches!(&got, Answer::TimedOut(_, None)), "{got:?}");
    for bad in ["echo '{\"Controllers\":[{'", "echo Contrôleur introuvable", "exit 3", "yes"] {
        let got = answer(&format!("{bad} | head -c 9000000"), TIMEOUT).await;
        assert!(
            matches!(&got, Answer::Failed(why) if why.starts_with("not understood")),
            "{got:?}"
        );
    }
}

fn read(controllers: serde_json::Value) -> Result<Vec<RaidReport>, parse::ParseError> {
    parse::parse(json!({ "Controllers": controllers }).to_string().as_bytes())
}

fn success(data: serde_json::Value) -> serde_json::Value {
    json!([{"Command Status": {"Controller": 0, "Status": "Success"}, "Response Data": data}])
}

#[test]
fn arrays_spares_rebuilds_foreign_drives_and_the_cache_are_read() {
    let data = json!({
        "Basics": {"Controller": 0, "Model": "X", "PCI Address": "00:65:00:00"},
        "Status": {"Controller Status": "Needs Attention", "Any Offline VD Cache Preserved": "Yes", "BBU Status": "NA"},
        "VD LIST": [
            {"DG/VD": "0/0", "TYPE": "RAID1", "State": "Optl", "Cache": "RWBD", "Size": "446.625 GB", "Name": ""},
            {"DG/VD": "1/239", "TYPE": "RAID6", "State": "Pdgd", "Cache": "NRAWBD", "Size": "21.8 TB"},
        ],
        "PD LIST": [
            {"EID:Slt": "252:0", "DID": 7, "State": "Onln", "DG": 0},
            {"EID:Slt": "252:1", "State": "Rbld", "DG": 1},
            {"EID:Slt": " :2", "State": "GHS", "DG": "-"},
            {"EID:Slt": "252:3", "State": "UGood", "DG": "F"},
        ],
        "Cachevault_Info": [{"Model": "CVPM05", "State": "Failed", "Temp": "28C"}],
    });
    let array = |number, state, forces_write_back, text: &str| ReportedArray {
        number,
        state: Some(state),
        forces_write_back,
        text: text.into(),
    };
    let expected = RaidReport {
        pci: Some("0000:65:00.0".into()),
        arrays: vec![
            array(0, ArrayState::Optimal, false, "0/0 RAID1 Optl RWBD 446.625 GB"),
            array(239, ArrayState::Degraded, true, "1/239 RAID6 Pdgd NRAWBD 21.8 TB"),
        ],
        hot_spares: 1,
        rebuilding: vec!["252:1".into()],
        foreign: vec!["252:3".into()],
        protection: CacheProtection::Impaired("Failed".into()),
        has_preserved_cache: true,
    };
    assert_eq!(read(success(data)).unwrap(), [expected]);
}

#[test]
fn what_an_answer_lacks_is_unknown_and_never_optimal() {
    assert_eq!(read(success(json!({}))).unwrap(), [RaidReport::default()]);
    let odd = json!({"VD LIST": [{"DG/VD": "0/0"}, {"DG/VD": "0/1", "State": "Optimale"}, {"State": "Optl"}]});
    let reports = read(success(odd)).unwrap();
    let states: Vec<_> = reports[0].arrays.iter().map(|it| (it.number, it.state)).collect();
    assert_eq!(states, [(0, None), (1, None)]);
    let absent = read(success(json!({"HwCfg": {"BBU": "Absent"}}))).unwrap();
    assert_eq!(absent[0].protection, CacheProtection::Absent);
    let twice =
        json!({"VD LIST": [{"DG/VD": "0/0", "State": "Optl"}, {"DG/VD": "1/0", "State": "OfLn"}]});
    assert!(matches!(read(success(twice)), Err(parse::ParseError::Twice)));
    let refused =
        json!([{"Command Status": {"Status": "Failure", "Description": "No Controller found"}}]);
    assert_eq!(read(refused).unwrap_err().to_string(), "the tool refused: No Controller found");
    assert!(matches!(read(json!({"VD LIST": 1})), Err(parse::ParseError::NoControllers)));
    let deep = "[".repeat(100_000);
    assert!(matches!(parse::parse(deep.as_bytes()), Err(parse::ParseError::Json(_))));
}
