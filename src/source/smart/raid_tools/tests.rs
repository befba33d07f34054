//! A controller's tool is asked seldom, alone, and not again after it hung.

mod answers;

use std::os::unix::fs::PermissionsExt;

use super::*;
use diskvitals_kernel_log::raid_array::ArrayState;
use diskvitals_model::raid_report::Rebuild;

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

fn failed(tool: &'static str, why: &str) -> ToolFailure {
    ToolFailure::new(tool, why.into())
}

fn timed_out(stuck: Option<UnkillableChild>) -> ToolFailure {
    let failure = Failure { why: "slow".into(), has_timed_out: true, stuck };
    ToolFailure { tool: "storcli", failure, known: None }
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
        let is_its = |it: &ToolFailure| {
            it.tool == tool.names.name && it.failure.has_timed_out && it.failure.stuck.is_none()
        };
        assert!(matches!(&got, Answer::Failed(it) if is_its(it)), "{got:?}");
        for bad in ["echo '{\"Controllers\":[{'", "echo Contrôleur introuvable", "exit 3", "yes"] {
            let got = answer(tool, &format!("{bad} | head -c 9000000"), TIMEOUT).await;
            let is_odd = |it: &ToolFailure| it.failure.why.starts_with("not understood");
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
        let Answer::Failed(ToolFailure { failure, known: Some(reports), .. }) = &got else {
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

#[tokio::test]
async fn storcli2_is_asked_for_its_controllers_and_their_arrays() {
    let [_, tool, ..] = &TOOLS;
    let script = r#"case "$*" in "/call show all nolog J"|"/call/vall show all nolog J") echo '{"Controllers":[]}' ;; esac"#;
    assert!(matches!(answer(tool, script, TIMEOUT).await, Answer::Reports(_)));
    let without_arrays = script.replace("vall show", "vall hide");
    let got = answer(tool, &without_arrays, TIMEOUT).await;
    assert!(matches!(got, Answer::Failed(ToolFailure { known: None, .. })), "{got:?}");
}
