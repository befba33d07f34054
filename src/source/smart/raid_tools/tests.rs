//! A controller's tool is asked seldom, alone, and not again after it hung.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{ArrayName, CacheProtection, ReportedArray};

const MEGARAID: RaidFamily = RaidFamily::MegaRaid;

fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

fn needed(families: &[RaidFamily]) -> RaidToolRequests {
    families.iter().map(|family| (*family, None)).collect()
}

fn result(answer: Answer) -> RaidToolResult {
    RaidToolResult { family: MEGARAID, begun: now(), answer }
}

/// The steps at these times after the start of the source.
fn step(tools: &mut RaidTools, from: Instant, after: Duration, smartctl: Smartctl) -> Step {
    tools.step(&needed(&[MEGARAID]), smartctl, from + after, now())
}

#[test]
fn a_tool_is_asked_hourly_and_alone() {
    let from = Instant::now();
    let mut tools = RaidTools::new(false, from);
    let nothing = tools.step(&needed(&[]), Smartctl::Idle, from + hours(5), now());
    assert_eq!(nothing, Step::WaitUntil(None), "no array, no tool");
    let first = from + FIRST_AFTER;
    assert_eq!(step(&mut tools, from, hours(0), Smartctl::Idle), Step::WaitUntil(Some(first)));
    assert_eq!(step(&mut tools, first, hours(0), Smartctl::Running), Step::HoldSmartctl);
    assert_eq!(step(&mut tools, first, hours(0), Smartctl::Idle), Step::Ask(MEGARAID));
    assert_eq!(step(&mut tools, first, hours(2), Smartctl::Idle), Step::HoldSmartctl, "it runs");
    tools.record(result(Answer::Reports(Vec::new())), first);
    let next = Step::WaitUntil(Some(first + INTERVAL));
    assert_eq!(step(&mut tools, first, Duration::from_secs(3599), Smartctl::Idle), next);
    assert_eq!(step(&mut tools, first, hours(1), Smartctl::Idle), Step::Ask(MEGARAID));
}

#[test]
fn tools_of_two_families_run_one_after_the_other() {
    let from = Instant::now();
    let mut tools = RaidTools::new(true, from);
    let both = needed(&[MEGARAID, RaidFamily::Adaptec]);
    let step = |tools: &mut RaidTools| tools.step(&both, Smartctl::Idle, from, now());
    assert_eq!(step(&mut tools), Step::Ask(MEGARAID));
    assert_eq!(step(&mut tools), Step::HoldSmartctl);
    tools.record(result(Answer::TimedOut("storcli", "slow".into(), None)), from);
    assert_eq!(step(&mut tools), Step::Ask(RaidFamily::Adaptec), "it pauses for one only");
    let answer = Answer::Failed("arcconf", "not understood: x".into());
    tools.record(RaidToolResult { family: RaidFamily::Adaptec, begun: now(), answer }, from);
    let errors: Vec<String> = tools.errors().collect();
    let slow = "storcli: timed out: slow; not asked again for a day";
    assert_eq!(errors, [slow, "arcconf: not understood: x"]);
    assert_eq!(step(&mut tools), Step::WaitUntil(Some(from + INTERVAL)));
}

#[test]
fn a_smartctl_that_cannot_be_killed_delays_the_tool_and_no_other_smartctl() {
    let from = Instant::now();
    let mut tools = RaidTools::new(true, from);
    let later = Step::WaitUntil(Some(from + RETRY));
    assert_eq!(step(&mut tools, from, hours(0), Smartctl::Stuck), later);
}

#[tokio::test]
async fn after_a_time_out_no_tool_is_run_for_a_day_nor_beside_one_that_cannot_be_killed() {
    let from = Instant::now();
    let mut tools = RaidTools::new(true, from);
    assert_eq!(step(&mut tools, from, hours(0), Smartctl::Idle), Step::Ask(MEGARAID));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let child = UnkillableChild::watch(None, async { drop(ended.await) });
    let answer = Answer::TimedOut("storcli", "slow".into(), Some(child));
    let report = tools.record(result(answer), from);
    let is_failure = |it: &_| matches!(it, Observation::Failed { .. });
    assert!(matches!(report, SourceUpdate::RaidReports { reports, .. } if is_failure(&reports)));
    let day = Step::WaitUntil(Some(from + PAUSE));
    assert_eq!(step(&mut tools, from, hours(23), Smartctl::Idle), day);
    let later = Step::WaitUntil(Some(from + PAUSE + RETRY));
    assert_eq!(step(&mut tools, from, PAUSE, Smartctl::Idle), later);
    end.send(()).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(step(&mut tools, from, PAUSE + RETRY, Smartctl::Idle), Step::Ask(MEGARAID));
}

#[test]
fn after_a_reset_of_the_controller_no_tool_is_run_for_a_day() {
    let (from, time) = (Instant::now(), now());
    let mut tools = RaidTools::new(true, from);
    let hour_ago = [(MEGARAID, Some(time.checked_sub(hours(1)).unwrap()))].into();
    let wait = tools.step(&hour_ago, Smartctl::Idle, from, time);
    assert_eq!(wait, Step::WaitUntil(Some(from + hours(23))));
    let asked = tools.step(&hour_ago, Smartctl::Idle, from + hours(23), time);
    assert_eq!(asked, Step::Ask(MEGARAID), "each reset counts once");
}

/// The answer to a script in the place of the tool.
async fn answer(tool: &Tool, script: &str, timeout: Duration) -> Answer {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tool");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let directory = dir.path().join("private");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("storcli.log"), "of an earlier run").unwrap();
    run(tool, path, &directory, timeout).await
}

#[tokio::test]
async fn the_tool_runs_in_an_empty_private_directory_and_is_killed_when_it_hangs() {
    let [storcli, ..] = &TOOLS;
    let good = r#"test "$(pwd)$(ls)" = "${0%/*}/private" && test "$*" = "/cALL show all J nolog" && echo '{"Controllers":[]}'"#;
    let got = answer(storcli, good, TIMEOUT).await;
    assert!(matches!(&got, Answer::Reports(reports) if reports.is_empty()), "{got:?}");
    for tool in &TOOLS {
        let got = answer(tool, "sleep 1000", Duration::from_millis(100)).await;
        assert!(
            matches!(&got, Answer::TimedOut(name, _, None) if *name == tool.names.name),
            "{got:?}"
        );
        for bad in ["echo '{\"Controllers\":[{'", "echo Contrôleur introuvable", "exit 3", "yes"] {
            let got = answer(tool, &format!("{bad} | head -c 9000000"), TIMEOUT).await;
            assert!(
                matches!(&got, Answer::Failed(_, why) if why.starts_with("not understood")),
                "{got:?}"
            );
        }
    }
}

#[tokio::test]
async fn arcconf_is_asked_for_each_controller_in_an_empty_directory() {
    let [.., arcconf] = &TOOLS;
    let script = r#"test -z "$(ls)" && touch UcliEvt.log && echo "Controllers found: 2
PCI Address (Domain:Bus:Device:Function) : 0:$2:0:0
Command completed successfully.""#;
    let Answer::Reports(reports) = answer(arcconf, script, TIMEOUT).await else { panic!() };
    let pci: Vec<_> = reports.iter().filter_map(|it| it.pci.as_deref()).collect();
    assert_eq!(pci, ["0000:01:00.0", "0000:02:00.0"]);
}

/// Our own text, in the form that users publish of hpssacli 2 to ssacli 6; not from a controller of ours.
const SSACLI: &str = "
HPE Smart Array P408i-a SR Gen10 in Slot 0 (Embedded)
   Bus Interface: PCI
   Controller Status: OK
   Cache Status: OK
   No-Battery Write Cache: Disabled
   Battery/Capacitor Count: 1
   Battery/Capacitor Status: Recharging
   PCI Address (Domain:Bus:Device.Function): 0000:5C:00.0
   Port Name: 1I
         Port ID: 0

   Array: A
      Interface Type: SAS
      Status: Failed Physical Drive

      Logical Drive: 1
         Size: 2.18 TB
         Fault Tolerance: 1
         Status: Recovering, 26% complete
         Unrecoverable Media Errors: None
         MultiDomain Status: OK
         Caching:  Enabled
         Unique Identifier: 600508B1001C000000000000000000A1
         Disk Name: /dev/sda
         Mirror Group 1:
            physicaldrive 1I:1:1 (port 1I:box 1:bay 1, SAS HDD, 1.2 TB, OK)
         Drive Type: Data

      Logical Drive: 2
         Size: 1 TB
         Fault Tolerance: 5
         Status: OK
         Unrecoverable Media Errors: Detected
         Caching:  Disabled
         Unique Identifier: 600508B1001C000000000000000000A2

      physicaldrive 1I:1:1
         Status: OK
         Drive Type: Data Drive
      physicaldrive 1I:1:2
         Status: Rebuilding
         Drive Type: Data Drive
      physicaldrive 2I:1:5
         Status: OK
         Drive Type: Spare Drive

   Array: B
      Status: OK
      physicaldrive 2I:1:5
         Status: OK
         Drive Type: Spare Drive
      physicaldrive 2I:1:6
         Status: Predictive Failure
         Drive Type: Data Drive

   SEP (Vendor ID HPE, Model Smart Adapter) 379
      Status: Failed
";

fn in_state(name: &str, state: Option<ArrayState>, lost: bool, text: &str) -> ReportedArray {
    ReportedArray {
        name: ArrayName::Wwn(format!("naa.{name}")),
        state,
        has_lost_blocks: lost,
        forces_write_back: false,
        text: text.into(),
    }
}

#[test]
fn ssacli_reports_arrays_by_their_identifiers() {
    let (a, b) = ("600508b1001c000000000000000000a1", "600508b1001c000000000000000000a2");
    let recovering = "logical drive 1 RAID 1 Recovering, 26% complete 2.18 TB";
    let expected = RaidReport {
        tool: "ssacli",
        pci: Some("0000:5c:00.0".into()),
        arrays: vec![
            in_state(a, Some(ArrayState::Degraded), false, recovering),
            in_state(b, Some(ArrayState::Optimal), true, "logical drive 2 RAID 5 OK 1 TB"),
        ],
        hot_spares: 1,
        rebuilding: vec!["1I:1:2".into(), "logical drive 1, 26% complete".into()],
        failed: vec!["2I:1:6 (Predictive Failure)".into()],
        protection: CacheProtection::Impaired("Recharging".into()),
        ..RaidReport::default()
    };
    assert_eq!(ssacli::parse(SSACLI.as_bytes()).unwrap(), [expected]);
}

#[test]
fn what_ssacli_leaves_out_or_says_otherwise_is_unknown() {
    let states = |text: &str| {
        let reports = ssacli::parse(text.as_bytes()).unwrap();
        reports[0].arrays.iter().map(|it| it.state).collect::<Vec<_>>()
    };
    let [degraded, optimal] = [ArrayState::Degraded, ArrayState::Optimal].map(Some);
    for (word, state) in [
        ("Interim Recovery Mode", degraded),
        ("Ready for Rebuild", degraded),
        ("Failed", Some(ArrayState::Offline)),
        ("Wiederherstellung", None),
        ("OK?", None),
    ] {
        let text = SSACLI.replace("Recovering, 26% complete", word);
        assert_eq!(states(&text), [state, optimal], "{word}");
    }
    let cut = |at: &str| SSACLI.split(at).next().unwrap().to_owned();
    assert_eq!(states(&cut("Logical Drive: 2")), [degraded], "the other is not listed");
    assert_eq!(states(&cut("         Unique Identifier")), [], "nor what has no identifier");
    let localized = SSACLI.replace("Status", "État");
    assert_eq!(states(&localized), [None, None]);
    let twice = SSACLI.replace("00A2", "00A1");
    assert!(matches!(ssacli::parse(twice.as_bytes()), Err(ParseError::Twice)));
    let refused = ssacli::parse(b"\nError: No controllers detected.\n").unwrap_err();
    assert_eq!(refused.to_string(), "the tool refused: No controllers detected.");
    for bad in [&b""[..], b"Contr\xf4leur", b"   Array: A\n"] {
        assert!(matches!(ssacli::parse(bad), Err(ParseError::NoControllers)));
    }
    let caches = "No-Battery Write Cache: Enabled";
    let forced = SSACLI.replace("No-Battery Write Cache: Disabled", caches);
    let forced = ssacli::parse(forced.as_bytes()).unwrap();
    assert_eq!(
        forced[0].arrays.iter().map(|it| it.forces_write_back).collect::<Vec<_>>(),
        [true, false]
    );
}

/// Our own text, in the form that users publish for aacraid; not from a controller of ours.
const ARCCONF: &str = "Controllers found: 1
----------------------------------------------------------------------
Controller information
----------------------------------------------------------------------
   Controller Status                        : Optimal
   Controller Model                         : Adaptec 5805
   --------------------------------------------------------
   Controller Battery Information
   --------------------------------------------------------
   Status                                   : Charging
   Over temperature                         : No
----------------------------------------------------------------------
Logical device information
----------------------------------------------------------------------
Logical device number 0
   Logical device name                      : data
   RAID level                               : 5
   Status of logical device                 : Optimal
   Size                                     : 953334 MB
   Failed stripes                           : Yes
   --------------------------------------------------------
   Logical device segment information
   --------------------------------------------------------
   Segment 0                                : Present (0,1) SERIAL

Logical device number 2
   RAID level                               : 1
   Status of logical device                 : Degraded, Rebuilding
   Size                                     : 100 MB
   Failed stripes                           : No
----------------------------------------------------------------------
Physical Device information
----------------------------------------------------------------------
      Device #0
         Device is a Hard drive
         State                              : Rebuilding
         Reported Location                  : Enclosure 0, Slot 1
         S.M.A.R.T.                         : No
      Device #1
         Device is a Hard drive
         State                              : Global Hot-Spare
      Device #2
         Device is a Hard drive
         State                              : Failed

Command completed successfully.
";

#[test]
fn arcconf_reports_containers_by_their_numbers() {
    let array = |number, state, has_lost_blocks, text: &str| ReportedArray {
        name: ArrayName::Target(number),
        state: Some(state),
        has_lost_blocks,
        forces_write_back: false,
        text: text.into(),
    };
    let expected = RaidReport {
        tool: "arcconf",
        arrays: vec![
            array(0, ArrayState::Optimal, true, "logical device 0 RAID 5 953334 MB Optimal"),
            array(
                2,
                ArrayState::Degraded,
                false,
                "logical device 2 RAID 1 100 MB Degraded, Rebuilding",
            ),
        ],
        hot_spares: 1,
        rebuilding: vec!["Enclosure 0, Slot 1".into()],
        failed: vec!["device 2 (Failed)".into()],
        protection: CacheProtection::Impaired("Charging".into()),
        ..RaidReport::default()
    };
    assert_eq!(arcconf::parse(ARCCONF.as_bytes()).unwrap(), [expected]);
}

/// As above, for controllers of smartpqi.
#[test]
fn arcconf_reports_newer_arrays_by_their_identifiers() {
    let text = "Controllers found: 1
Controller information
   PCI Address (Domain:Bus:Device:Function)   : 0:4b:0:0
   Green Backup Information
   Backup Power Status                        : Not Fully Charged
Logical device information
Logical Device number 1
   Disk Name                                  : /dev/sde (Disk0) (Bus: 1, Target: 0, Lun: 1)
   RAID level                                 : 6
   Status of Logical Device                   : Impacted
   Volume Unique Identifier                   : 600508B1001C000000000000000000A1
Logical Device number 2
   Disk Name                                  : /dev/sdf (Disk0) (Bus: 1, Target: 0, Lun: 2)
   Status of Logical Device                   : Optimal
Command completed successfully.";
    let name = "600508b1001c000000000000000000a1";
    let expected = RaidReport {
        tool: "arcconf",
        pci: Some("0000:4b:00.0".into()),
        // The other one has no name that the kernel has too.
        arrays: vec![in_state(name, None, false, "logical device 1 RAID 6 Impacted")],
        protection: CacheProtection::Impaired("Not Fully Charged".into()),
        ..RaidReport::default()
    };
    assert_eq!(arcconf::parse(text.as_bytes()).unwrap(), [expected]);
}

#[test]
fn an_answer_of_arcconf_that_is_cut_or_in_another_language_is_none() {
    let error = |text: &str| arcconf::parse(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(error(""), "the answer has no list of controllers");
    assert_eq!(error("Controllers found: 0\nCommand completed successfully."), error(""));
    assert_eq!(error("Gefundene Controller: 1"), error(""));
    assert_eq!(error(ARCCONF.split("Command").next().unwrap()), "the answer has no end");
    let refused = "Controllers found: 1\nCommand aborted.";
    assert_eq!(error(refused), "the tool refused: Command aborted.");
    let states = |text: &str| {
        let reports = arcconf::parse(text.as_bytes()).unwrap();
        reports[0].arrays.iter().map(|it| it.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&ARCCONF.replace("Status of", "Zustand von")), [None, None]);
    let odd = ARCCONF.replace(": Charging", ": Unbekannt");
    assert_eq!(arcconf::parse(odd.as_bytes()).unwrap()[0].protection, CacheProtection::Unknown);
    assert_eq!(arcconf::count(b"Controllers found: 2 \n"), 2);
}

fn read(controllers: serde_json::Value) -> Result<Vec<RaidReport>, ParseError> {
    storcli::parse(json!({ "Controllers": controllers }).to_string().as_bytes())
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
            {"EID:Slt": "252:4", "State": "Failed", "DG": 1},
        ],
        "Cachevault_Info": [{"Model": "CVPM05", "State": "Failed", "Temp": "28C"}],
    });
    let array = |number, state, forces_write_back, text: &str| ReportedArray {
        name: ArrayName::Target(number),
        state: Some(state),
        has_lost_blocks: false,
        forces_write_back,
        text: text.into(),
    };
    let expected = RaidReport {
        tool: "storcli",
        pci: Some("0000:65:00.0".into()),
        arrays: vec![
            array(0, ArrayState::Optimal, false, "0/0 RAID1 Optl RWBD 446.625 GB"),
            array(239, ArrayState::Degraded, true, "1/239 RAID6 Pdgd NRAWBD 21.8 TB"),
        ],
        hot_spares: 1,
        rebuilding: vec!["252:1".into()],
        failed: vec!["252:4 (Failed)".into()],
        foreign: vec!["252:3".into()],
        protection: CacheProtection::Impaired("Failed".into()),
        has_preserved_cache: true,
    };
    assert_eq!(read(success(data)).unwrap(), [expected]);
}

#[test]
fn what_an_answer_lacks_is_unknown_and_never_optimal() {
    let nothing = RaidReport { tool: "storcli", ..RaidReport::default() };
    assert_eq!(read(success(json!({}))).unwrap(), [nothing]);
    let odd = json!({"VD LIST": [{"DG/VD": "0/0"}, {"DG/VD": "0/1", "State": "Optimale"}, {"State": "Optl"}]});
    let reports = read(success(odd)).unwrap();
    let states: Vec<_> = reports[0].arrays.iter().map(|it| (it.name.clone(), it.state)).collect();
    assert_eq!(states, [0, 1].map(|number| (ArrayName::Target(number), None)));
    let absent = read(success(json!({"HwCfg": {"BBU": "Absent"}}))).unwrap();
    assert_eq!(absent[0].protection, CacheProtection::Absent);
    let twice =
        json!({"VD LIST": [{"DG/VD": "0/0", "State": "Optl"}, {"DG/VD": "1/0", "State": "OfLn"}]});
    assert!(matches!(read(success(twice)), Err(ParseError::Twice)));
    let refused =
        json!([{"Command Status": {"Status": "Failure", "Description": "No Controller found"}}]);
    assert_eq!(read(refused).unwrap_err().to_string(), "the tool refused: No Controller found");
    assert!(matches!(read(json!({"VD LIST": 1})), Err(ParseError::NoControllers)));
    let deep = "[".repeat(100_000);
    assert!(matches!(storcli::parse(deep.as_bytes()), Err(ParseError::Json(_))));
}
