//! A controller's tool is asked seldom, alone, and not again after it hung.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{ArrayName, CacheProtection, Rebuild, ReportedArray};

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

fn failed(tool: &'static str, why: &str) -> Failed {
    Failed::new(tool, why.into())
}

fn timed_out(stuck: Option<UnkillableChild>) -> Failed {
    let failure = Failure { why: "slow".into(), has_timed_out: true, stuck };
    Failed { tool: "storcli", failure, known: None }
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
    tools.record(result(Answer::Failed(timed_out(None))), from);
    assert_eq!(step(&mut tools), Step::Ask(RaidFamily::Adaptec), "it pauses for one only");
    let answer = Answer::Failed(failed("arcconf", "not understood: x"));
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
    let answer = Answer::Failed(timed_out(Some(child)));
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
    run(tool, &Origin::Program { path, directory: &directory, timeout }).await
}

#[tokio::test]
async fn the_tool_runs_in_an_empty_private_directory_and_is_killed_when_it_hangs() {
    let [storcli, ..] = &TOOLS;
    let good = r#"test "$(pwd)$(ls)" = "${0%/*}/private" && test "$*" = "/cALL show all J nolog" && echo '{"Controllers":[]}'"#;
    let got = answer(storcli, good, TIMEOUT).await;
    assert!(matches!(&got, Answer::Reports(reports) if reports.is_empty()), "{got:?}");
    for tool in &TOOLS {
        let got = answer(tool, "sleep 1000", Duration::from_millis(100)).await;
        let is_its = |it: &Failed| {
            it.tool == tool.names.name && it.failure.has_timed_out && it.failure.stuck.is_none()
        };
        assert!(matches!(&got, Answer::Failed(it) if is_its(it)), "{got:?}");
        for bad in ["echo '{\"Controllers\":[{'", "echo Contrôleur introuvable", "exit 3", "yes"] {
            let got = answer(tool, &format!("{bad} | head -c 9000000"), TIMEOUT).await;
            let is_odd = |it: &Failed| it.failure.why.starts_with("not understood");
            assert!(matches!(&got, Answer::Failed(it) if is_odd(it)), "{got:?}");
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

/// An array that is being rebuilt, as storcli lists it.
const REBUILDING: &str = r#"{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"},"Response Data":{
"VD LIST":[{"DG/VD":"1/1","State":"Dgrd"}],"PD LIST":[{"EID:Slt":"252:4","State":"Rbld","DG":1}]}}]}"#;

/// A storcli that answers like this when it is asked for rebuilds.
fn storcli(rebuild: &str) -> String {
    format!(
        "case \"$*\" in\n\"/cALL show all J nolog\") echo '{REBUILDING}' ;;\n\
         \"/cALL/eALL/sALL show rebuild J nolog\") {rebuild} ;;\nesac"
    )
}

#[tokio::test]
async fn storcli_is_asked_for_the_progress_of_a_rebuild_while_one_runs() {
    let [tool, ..] = &TOOLS;
    let rows = r#"echo '{"Controllers":[{"Command Status":{"Controller":0,"Status":"Success"},"Response Data":[
{"Drive-ID":"/c0/e252/s3","Progress%":"-","Status":"Not in progress","Estimated Time Left":"-"},
{"Drive-ID":"/c0/e252/s4","Progress%":8,"Status":"In progress","Estimated Time Left":"6 Hours 25 Minutes"}]}]}'"#;
    let Answer::Reports(reports) = answer(tool, &storcli(rows), TIMEOUT).await else { panic!() };
    let rebuild = Rebuild {
        onto: vec!["252:4".into()],
        percent: Some(8),
        seconds_left: Some(6 * 3600 + 25 * 60),
    };
    assert_eq!(reports[0].arrays[0].rebuild, Some(rebuild));
    let whole = storcli("exit 1").replace("Rbld", "Onln");
    let got = answer(tool, &whole, TIMEOUT).await;
    assert!(matches!(got, Answer::Reports(_)), "nothing is asked: {got:?}");
}

#[tokio::test]
async fn without_the_progress_the_states_count_and_a_time_out_pauses_all_the_same() {
    let [tool, ..] = &TOOLS;
    for (rebuild, has_timed_out) in [("echo no", false), ("sleep 1000", true)] {
        let timeout = Duration::from_secs(if has_timed_out { 1 } else { 60 });
        let got = answer(tool, &storcli(rebuild), timeout).await;
        let Answer::Failed(Failed { failure, known: Some(reports), .. }) = &got else {
            panic!("{got:?}")
        };
        assert_eq!(failure.has_timed_out, has_timed_out);
        let array = &reports[0].arrays[0];
        let rebuild = Rebuild { onto: vec!["252:4".into()], ..Rebuild::default() };
        assert_eq!((array.state, &array.rebuild), (Some(ArrayState::Degraded), &Some(rebuild)));
        let from = Instant::now();
        let mut tools = RaidTools::new(true, from);
        assert_eq!(step(&mut tools, from, hours(0), Smartctl::Idle), Step::Ask(MEGARAID));
        let update = tools.record(result(got), from);
        let is_ok = |it: &_| matches!(it, Observation::Ok { .. });
        assert!(matches!(update, SourceUpdate::RaidReports { reports, .. } if is_ok(&reports)));
        let next = if has_timed_out { PAUSE } else { INTERVAL };
        assert_eq!(
            step(&mut tools, from, hours(0), Smartctl::Idle),
            Step::WaitUntil(Some(from + next))
        );
        assert_eq!(tools.errors().count(), 1, "doctor says why");
    }
}

#[test]
fn the_time_left_of_a_rebuild_has_units_and_the_slot_may_lack_an_enclosure() {
    let of = |drive: &str, slot: &str, percent: serde_json::Value, left: &str| {
        let mut data = success(json!({
            "VD LIST": [{"DG/VD": "0/0", "State": "Dgrd"}],
            "PD LIST": [{"EID:Slt": slot, "State": "Rbld", "DG": "0"}, {"EID:Slt": "9:9", "State": "Rbld", "DG": 1}],
        }));
        data[0]["Command Status"]["Controller"] = json!("0");
        let rebuild = success(
            json!([{"Drive-ID": drive, "Progress%": percent, "Estimated Time Left": left}]),
        );
        let text = |it: serde_json::Value| json!({ "Controllers": it }).to_string();
        let reports =
            storcli::parse(text(data).as_bytes(), Some(text(rebuild).as_bytes())).unwrap();
        let rebuild = reports[0].arrays[0].rebuild.clone().unwrap();
        assert_eq!(rebuild.onto, [slot.trim()], "of this group alone");
        (rebuild.percent, rebuild.seconds_left)
    };
    let days = 4 * 86_400 + 3 * 3600 + 51 * 60;
    assert_eq!(of("/c0/s4", " :4", json!(0), "4 Days 3 Hours 51 Minutes"), (Some(0), Some(days)));
    assert_eq!(of("/c0/e1/s2", "1:2", json!("14"), "49 Minutes"), (Some(14), Some(49 * 60)));
    assert_eq!(of("/c0/e1/s2", "1:2", json!("-"), "-"), (None, None));
    assert_eq!(of("/c0/e1/s2", "1:2", json!(400), "9 Jahre"), (None, None));
    assert_eq!(of("/c1/e1/s2", "1:2", json!(14), "49 Minutes"), (None, None), "of another one");
    assert_eq!(of("/c0/e1/s2", "1:2", json!(14), "18446744073709551615 Days"), (Some(14), None));
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
        rebuild: None,
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
            ReportedArray {
                rebuild: Some(Rebuild {
                    onto: vec!["1I:1:2".into()],
                    percent: Some(26),
                    seconds_left: None,
                }),
                ..in_state(a, Some(ArrayState::Degraded), false, recovering)
            },
            in_state(b, Some(ArrayState::Optimal), true, "logical drive 2 RAID 5 OK 1 TB"),
        ],
        hot_spares: 1,
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
        ("Recovering, 54.28% complete", degraded),
        ("Expanding, 3% complete", None),
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
    let share = SSACLI.replace("26%", "54.28%");
    let share = ssacli::parse(share.as_bytes()).unwrap()[0].arrays[0].rebuild.clone().unwrap();
    assert_eq!(share.percent, Some(54));
    for (word, expected) in [
        (
            "Failed (Replace Batteries)",
            CacheProtection::Impaired("Failed (Replace Batteries)".into()),
        ),
        ("OK", CacheProtection::Optimal),
        ("Wird geladen", CacheProtection::Unknown),
    ] {
        let text = SSACLI.replace("Status: Recharging", &format!("Status: {word}"));
        assert_eq!(ssacli::parse(text.as_bytes()).unwrap()[0].protection, expected);
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
   --------------------------------------------------------
   Logical device segment information
   --------------------------------------------------------
   Segment 0                                : Rebuilding (Controller:1,Enclosure:0,Slot:1) SERIAL
   Segment 1                                : Missing
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
        rebuild: None,
        text: text.into(),
    };
    let rebuilding = "logical device 2 RAID 1 100 MB Degraded, Rebuilding";
    let rebuild =
        |percent| Rebuild { onto: vec!["Enclosure 0, Slot 1".into()], percent, seconds_left: None };
    let expected = |percent| RaidReport {
        tool: "arcconf",
        arrays: vec![
            array(0, ArrayState::Optimal, true, "logical device 0 RAID 5 953334 MB Optimal"),
            ReportedArray {
                rebuild: Some(rebuild(percent)),
                ..array(2, ArrayState::Degraded, false, rebuilding)
            },
        ],
        hot_spares: 1,
        failed: vec!["device 2 (Failed)".into(), "logical device 2, Segment 1 (Missing)".into()],
        protection: CacheProtection::Impaired("Charging".into()),
        ..RaidReport::default()
    };
    assert_eq!(arcconf::parse(ARCCONF.as_bytes(), None).unwrap(), [expected(None)]);
    let with = |status: &str| arcconf::parse(ARCCONF.as_bytes(), Some(status.as_bytes()));
    assert_eq!(with(GETSTATUS).unwrap(), [expected(Some(36))]);
    for other in [
        GETSTATUS.replace(": 2", ": 0"),
        GETSTATUS.replace("Rebuild", "Build/Verify with fix"),
        GETSTATUS.replace("In Progress", "Aborted"),
        "Controllers found: 1\n   Current operation              : None\n\nCommand completed successfully.\n".into(),
    ] {
        assert_eq!(with(&other).unwrap(), [expected(None)], "{other}");
    }
    assert!(matches!(with("Controllers found: 1\nLogical device Task:"), Err(ParseError::NoEnd)));
    let itself =
        ARCCONF.replace("Degraded, Rebuilding", "Suboptimal, Rebuilding ( Rebuild : 38 % )");
    let arrays = arcconf::parse(itself.as_bytes(), None).unwrap().remove(0).arrays;
    assert_eq!(arrays[1].state, Some(ArrayState::Degraded));
    assert_eq!(arrays[1].rebuild, Some(rebuild(Some(38))));
}

/// What runs on the device above.
const GETSTATUS: &str = "Controllers found: 1
Logical device Task:
   Logical device                 : 2
   Task ID                        : 102
   Current operation              : Rebuild
   Status                         : In Progress
   Priority                       : High
   Percentage complete            : 36


Command completed successfully.
";

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
    assert_eq!(arcconf::parse(text.as_bytes(), None).unwrap(), [expected]);
}

#[test]
fn an_answer_of_arcconf_that_is_cut_or_in_another_language_is_none() {
    let error = |text: &str| arcconf::parse(text.as_bytes(), None).unwrap_err().to_string();
    assert_eq!(error(""), "the answer has no list of controllers");
    assert_eq!(error("Controllers found: 0\nCommand completed successfully."), error(""));
    assert_eq!(error("Gefundene Controller: 1"), error(""));
    assert_eq!(error(ARCCONF.split("Command").next().unwrap()), "the answer has no end");
    let refused = "Controllers found: 1\nCommand aborted.";
    assert_eq!(error(refused), "the tool refused: Command aborted.");
    let states = |text: &str| {
        let reports = arcconf::parse(text.as_bytes(), None).unwrap();
        reports[0].arrays.iter().map(|it| it.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&ARCCONF.replace("Status of", "Zustand von")), [None, None]);
    let odd = ARCCONF.replace(": Charging", ": Unbekannt");
    assert_eq!(
        arcconf::parse(odd.as_bytes(), None).unwrap()[0].protection,
        CacheProtection::Unknown
    );
    for (word, expected) in
        [("ZMM not installed", CacheProtection::Absent), ("ZMM Optimal", CacheProtection::Optimal)]
    {
        let text = ARCCONF.replace("Controller Battery Inf", "Controller ZMM Inf");
        let text = text.replace(": Charging", &format!(": {word}"));
        assert_eq!(arcconf::parse(text.as_bytes(), None).unwrap()[0].protection, expected);
    }
    assert_eq!(arcconf::count(b"Controllers found: 2 \n"), 2);
}

fn read(controllers: serde_json::Value) -> Result<Vec<RaidReport>, ParseError> {
    storcli::parse(json!({ "Controllers": controllers }).to_string().as_bytes(), None)
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
        rebuild: None,
        text: text.into(),
    };
    let expected = RaidReport {
        tool: "storcli",
        pci: Some("0000:65:00.0".into()),
        arrays: vec![
            array(0, ArrayState::Optimal, false, "0/0 RAID1 Optl RWBD 446.625 GB"),
            ReportedArray {
                rebuild: Some(Rebuild { onto: vec!["252:1".into()], ..Rebuild::default() }),
                ..array(239, ArrayState::Degraded, true, "1/239 RAID6 Pdgd NRAWBD 21.8 TB")
            },
        ],
        hot_spares: 1,
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
    assert!(matches!(storcli::parse(deep.as_bytes(), None), Err(ParseError::Json(_))));
    for hostile in ["[]", "1", r#""x""#, "null"] {
        assert!(matches!(storcli::parse(hostile.as_bytes(), None), Err(ParseError::NoControllers)));
    }
    let odd = json!([1, "x", null, {"Command Status": {"Status": "Success"}}]);
    assert_eq!(read(odd).unwrap().len(), 1);
}
