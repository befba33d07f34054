//! A drive's SMART data → wire.

use crate::time;
use diskvitals_host::clock;
use diskvitals_model::facts::smart::{SelfTestStart, SmartFacts, SmartOutcome};
use diskvitals_model::snapshot::Drive;
use diskvitals_smart::SelfTestKind;
use diskvitals_smart::history::{Metric, Point, Series, Trend, TrendKind, TrendPoint};
use diskvitals_smart::report::{Attribute, Body, SelfTest, SmartReport, WhenFailed};
use diskvitals_wire as wire;

pub fn of_drive(smart: &SmartFacts) -> wire::Smart {
    let (state, detail) = state(smart);
    let last = smart.history.last.as_ref();
    let report = last.map(|(_, report)| report.as_ref());
    let mut wire = report.map(of_report).unwrap_or_default();
    wire.state = state.into();
    wire.detail = detail;
    wire.idle = smart.idle;
    wire.asked = smart.outcome.as_ref().map(|(at, _)| time(*at));
    wire.answered = last.map(|(at, _)| time(*at));
    let endurance = smart.history.endurance();
    wire.wear_days_left = endurance.and_then(|it| u32::try_from(it.days_left).ok());
    wire.values =
        smart.history.series.iter().filter_map(|(metric, series)| value(*metric, series)).collect();
    wire.values.sort_by(|a, b| a.metric.cmp(&b.metric));
    if let Some(start) = &smart.self_test {
        wire.self_tests.get_or_insert_default().requested = Some(requested(start));
    }
    wire
}

/// Only the content of the report; the caller adds the time and state of the query.
pub fn of_report(report: &SmartReport) -> wire::Smart {
    let latest =
        |metric: Metric| diskvitals_smart::history::metric_values(report).get(&metric).copied();
    let attributes = match &report.body {
        Body::Ata(ata) => ata.attributes.iter().map(attribute).collect(),
        Body::Nvme(_) | Body::Scsi(_) | Body::None => Vec::new(),
    };
    wire::Smart {
        passed: report.passed,
        temperature_celsius: report.temperature.and_then(|celsius| i32::try_from(celsius).ok()),
        temperature_limit_celsius: report
            .temperature_limit
            .and_then(|celsius| i32::try_from(celsius).ok()),
        power_on_hours: report.power_on_hours,
        power_cycles: report.power_cycles,
        wear_percent: latest(Metric::WearPercent).and_then(|percent| u32::try_from(percent).ok()),
        spare_percent: latest(Metric::SparePercent).and_then(|percent| u32::try_from(percent).ok()),
        attributes,
        self_tests: Some(wire::SelfTests {
            running_remaining_percent: report.self_tests.running.map(u32::from),
            log: report.self_tests.log.iter().map(self_test).collect(),
            short_minutes: report.self_tests.short_minutes.unwrap_or(0),
            long_minutes: report.self_tests.long_minutes.unwrap_or(0),
            requested: None,
        }),
        messages: report.messages.iter().map(|message| message.text.clone()).collect(),
        notes: report.notes.clone(),
        family: report.identity.family.clone().unwrap_or_default(),
        device: report.identity.device.clone(),
        device_type: report.identity.device_type.clone(),
        ..wire::Smart::default()
    }
}

/// What smartctl printed for the drive.
pub fn output(drive: &Drive) -> wire::SmartOutput {
    let drive_id = drive.facts.id.to_string();
    let kept = drive.smart.as_ref().and_then(|smart| smart.output.as_ref());
    let Some(output) = kept else {
        let unavailable = "smartctl has printed nothing for this drive since the daemon's start";
        return wire::SmartOutput {
            drive_id,
            unavailable: unavailable.to_owned(),
            ..Default::default()
        };
    };
    wire::SmartOutput {
        drive_id,
        time: Some(time(output.at)),
        exit_status: output.exit_status,
        complete: output.complete,
        size_bytes: output.size,
        gzip: output.gzip.as_deref().unwrap_or_default().to_vec(),
        unavailable: output.gzip.as_ref().err().cloned().unwrap_or_default(),
    }
}

pub fn history(drive: &Drive) -> wire::SmartHistory {
    let point = |point: &Point| wire::SmartPoint {
        time: Some(time(point.at)),
        value: point.value,
        minimum: None,
        mean: None,
    };
    let series = |(metric, series): (&Metric, &Series)| wire::SmartSeries {
        metric: metric.name().to_owned(),
        points: series.points.iter().map(point).collect(),
    };
    let mut history =
        wire::SmartHistory { drive_id: drive.facts.id.to_string(), series: Vec::new() };
    if let Some(smart) = &drive.smart {
        let (trends, all) = (&smart.history.trends, &smart.history.series);
        history.series.extend(trends.iter().map(trend));
        // Its changes are of the last days only.
        let is_trend = |metric: &Metric| {
            *metric == Metric::Temperature && trends.contains_key(&TrendKind::Temperature)
        };
        history.series.extend(all.iter().filter(|(metric, _)| !is_trend(metric)).map(series));
    }
    history
}

fn trend((kind, trend): (&TrendKind, &Trend)) -> wire::SmartSeries {
    let metric = match kind {
        TrendKind::Temperature => Metric::Temperature.name(),
        TrendKind::Latency => "latency",
    };
    let point = |it: TrendPoint| wire::SmartPoint {
        time: Some(time(it.at)),
        value: it.greatest.into(),
        minimum: (it.least < it.greatest).then_some(it.least.into()),
        mean: (it.least < it.greatest).then_some(it.mean.into()),
    };
    wire::SmartSeries { metric: metric.to_owned(), points: trend.points().map(point).collect() }
}

fn state(smart: &SmartFacts) -> (wire::smart::State, String) {
    use wire::smart::State;
    if let Some(stuck) = &smart.stuck {
        let waiting = stuck.waiting_in.as_ref();
        let waiting = waiting.map_or_else(String::new, |call| format!(", waiting in {call}"));
        return (
            State::Stuck,
            format!("smartctl has not returned since {:.0}{waiting}", clock::wall(stuck.since)),
        );
    }
    match smart.outcome.as_ref().map(|(_, outcome)| outcome) {
        None => (State::Waiting, String::new()),
        Some(SmartOutcome::Report) => (State::Answered, String::new()),
        Some(SmartOutcome::Standby { mode }) => (State::Asleep, mode.clone()),
        Some(SmartOutcome::Failed { why } | SmartOutcome::TimedOut { why }) => {
            (State::Failed, why.clone())
        }
        Some(SmartOutcome::NotApplicable { why, hint, .. }) => {
            let hint = hint.iter().map(|hint| format!("; {hint}"));
            (State::NotApplicable, why.clone() + &hint.collect::<String>())
        }
    }
}

fn value(metric: Metric, series: &Series) -> Option<wire::SmartValue> {
    let (first, last) = (series.points.first()?, series.points.last()?);
    // The last point is the last reading. The change happened after the last point with another
    // value.
    let changed = series
        .points
        .windows(2)
        .rev()
        .find(|pair| pair[0].value != pair[1].value)
        .map(|pair| pair[1].at);
    Some(wire::SmartValue {
        metric: metric.name().to_owned(),
        value: last.value,
        first: first.value,
        first_time: Some(time(first.at)),
        changed: changed.map(time),
    })
}

fn attribute(attribute: &Attribute) -> wire::SmartAttribute {
    wire::SmartAttribute {
        id: attribute.id.into(),
        name: attribute.name.clone(),
        value: attribute.value.into(),
        worst: attribute.worst.into(),
        threshold: attribute.threshold.map(u32::from),
        prefailure: attribute.prefailure,
        failed: match attribute.when_failed {
            WhenFailed::Now => "now",
            WhenFailed::Past => "past",
            WhenFailed::Never | WhenFailed::Unknown => "",
        }
        .to_owned(),
        raw: attribute.raw,
        raw_text: attribute.raw_text.clone(),
    }
}

fn self_test(test: &SelfTest) -> wire::SelfTest {
    wire::SelfTest {
        kind: test.kind.clone(),
        outcome: test.outcome.name().to_owned(),
        text: test.text.clone(),
        hours: test.hours,
        lba: test.lba,
    }
}

pub(crate) fn self_test_kind(kind: SelfTestKind) -> wire::SelfTestKind {
    match kind {
        SelfTestKind::Short => wire::SelfTestKind::Short,
        SelfTestKind::Long => wire::SelfTestKind::Long,
    }
}

fn requested(start: &SelfTestStart) -> wire::SelfTestRequest {
    let (started, text) = match &start.result {
        Ok(text) => (true, text.clone()),
        Err(why) => (false, why.clone()),
    };
    wire::SelfTestRequest {
        kind: self_test_kind(start.kind).into(),
        time: Some(time(start.at)),
        started,
        text,
    }
}
