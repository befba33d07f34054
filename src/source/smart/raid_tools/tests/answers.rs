//! What the tools' answers report, and that a word which is not known is unknown.

use serde_json::json;

use crate::smart::raid_tools::words::ParseError;
use crate::smart::raid_tools::{arcconf, ssacli, storcli, storcli2};
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::{
    ArrayName, CacheProtection, RaidReport, Rebuild, ReportedArray,
};

/// Our own answers of storcli2, in the form that users publish; not from a controller of ours.
fn storcli2_answers() -> (serde_json::Value, serde_json::Value) {
    let all = json!({
        "HostInterface": {"PCI Address": "00:C1:00:0"},
        "Status": {"Controller Status": "Optimal", "Preserved Cache Present": "No"},
        "HwCfg": {"Energy Pack": "Present"},
        "VD LIST": [{"DG/VD": "0/1", "State": "Optl"}],
        "PD LIST": [
            {"EID:Slt": "306:0", "PID": 293, "State": "Conf", "Status": "Online", "DG": 0},
            {"EID:Slt": "306:3", "PID": 296, "State": "Conf", "Status": "Failed", "DG": 1},
            {"EID:Slt": "306:4", "PID": 297, "State": "GHS", "Status": "Good", "DG": "-"},
            {"EID:Slt": "306:5", "PID": 298, "State": "GHSShld", "Status": "Good", "DG": "-"},
            {"EID:Slt": "306:6", "PID": 299, "State": "UConf", "Status": "Good", "DG": "F"},
        ],
        "Energy Pack Info": [{"Type": "Supercap", "SubType": "FBU345", "Status": "Need Attention"}],
    });
    let drive = |name: &str, state: &str, naa: &str, bad: &str, members: serde_json::Value| {
        json!({
            "VD Info": {"DG/VD": name, "TYPE": "RAID1", "State": state, "CurrentCache": "NR,WB", "Size": "9.094 TiB", "Name": ""},
            "PDs": members,
            "VD Properties": {"Cache Preserved": "No", "Bad Block Exists": bad, "SCSI NAA Id": naa, "OS Drive Name": "/dev/sda"},
        })
    };
    let (a, b) = ("600062b20000000000000000000000a1", "600062B20000000000000000000000A2");
    let rebuilt = json!([{"EID:Slt": "306:7", "State": "Conf", "Status": "Rebuild", "DG": 1}]);
    let arrays = json!({"Virtual Drives": [
        drive("0/1", "Optl", a, "Yes", json!([])), drive("1/2", "Pdgd", b, "No", rebuilt),
    ]});
    (all, arrays)
}

fn read2(
    (all, arrays): (serde_json::Value, serde_json::Value),
) -> Result<Vec<RaidReport>, ParseError> {
    let text = |data| {
        let status = json!({"CLI Version": "008.0011", "Controller": "0", "Status": "Success"});
        json!({"Controllers": [{"Command Status": status, "Response Data": data}]}).to_string()
    };
    storcli2::parse(text(all).as_bytes(), text(arrays).as_bytes())
}

#[test]
fn storcli2_reports_arrays_by_their_identifiers() {
    let (a, b) = ("600062b20000000000000000000000a1", "600062b20000000000000000000000a2");
    let whole = "0/1 RAID1 Optl NR,WB 9.094 TiB";
    let expected = RaidReport {
        tool: "storcli2",
        pci: Some("0000:c1:00.0".into()),
        arrays: vec![
            in_state(a, Some(ArrayState::Optimal), true, whole),
            ReportedArray {
                rebuild: Some(Rebuild { onto: vec!["306:7".into()], ..Rebuild::default() }),
                ..in_state(b, Some(ArrayState::Degraded), false, "1/2 RAID1 Pdgd NR,WB 9.094 TiB")
            },
        ],
        hot_spares: 1,
        failed: vec!["306:3 (Failed)".into()],
        foreign: vec!["306:6".into()],
        protection: CacheProtection::Impaired("Need Attention".into()),
        has_preserved_cache: false,
    };
    assert_eq!(read2(storcli2_answers()).unwrap(), [expected]);
}

#[test]
fn what_storcli2_leaves_out_or_says_otherwise_is_unknown() {
    let nothing = RaidReport { tool: "storcli2", ..RaidReport::default() };
    assert_eq!(read2((json!({}), json!({}))).unwrap(), [nothing]);
    assert!(matches!(read2((json!(1), json!([1]))), Ok(reports) if reports[0].arrays.is_empty()));
    let states = |change: fn(&mut serde_json::Value)| {
        let (all, mut arrays) = storcli2_answers();
        change(&mut arrays["Virtual Drives"][0]);
        let arrays = read2((all, arrays)).unwrap().remove(0).arrays;
        arrays.into_iter().map(|it| it.state).collect::<Vec<_>>()
    };
    let degraded = Some(ArrayState::Degraded);
    assert_eq!(states(|it| it["VD Info"]["State"] = json!("Optimale")), [None, degraded]);
    assert_eq!(states(|it| it["VD Info"] = json!(null)), [None, degraded]);
    assert_eq!(states(|it| it["VD Properties"]["SCSI NAA Id"] = json!("-")), [degraded]);
    let (all, mut arrays) = storcli2_answers();
    arrays["Virtual Drives"][0]["VD Properties"]["SCSI NAA Id"] =
        arrays["Virtual Drives"][1]["VD Properties"]["SCSI NAA Id"].clone();
    assert!(matches!(read2((all, arrays)), Err(ParseError::Twice)));
    for (status, expected) in [
        (json!([{"Status": "Optimal"}]), CacheProtection::Optimal),
        (json!([{"Status": "Unavailable"}]), CacheProtection::Unknown),
        (json!([]), CacheProtection::Unknown),
    ] {
        let (mut all, arrays) = storcli2_answers();
        all["Energy Pack Info"] = status;
        assert_eq!(read2((all, arrays)).unwrap()[0].protection, expected);
    }
    let (mut all, arrays) = storcli2_answers();
    (all["Energy Pack Info"], all["HwCfg"]["Energy Pack"]) = (json!(null), json!("Absent"));
    assert_eq!(read2((all, arrays)).unwrap()[0].protection, CacheProtection::Absent);
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
