//! The tables of the page: drives, volumes, checks, self-tests. The worst come first.

use crate::answers::Answers;
use crate::render::drives::{kind, rank};
use crate::render::{checks as render_checks, smart, volumes as render_volumes};
use crate::report::health_class;
use crate::report::html::Html;
use crate::report::html::badge;
use crate::report::html::table;
use crate::report::sparkline;
use crate::words::{health, used_percent, used_share};
use diskvitals_model::label;
use diskvitals_terminal::layout::counted;
use diskvitals_terminal::screen::{Screen, bytes, or_dash};
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;

/// From this fill on, the bar has the color of a warning; the finding says whether it is one.
const NEARLY_FULL: u64 = 90;
/// Rows of the table of volumes, and of those of checks and self-tests.
const MAX_VOLUMES: usize = 600;
const MAX_CHECKS: usize = 50;
const MAX_SELF_TESTS: usize = 100;

/// The anchor of a drive's row, by its place in the answers.
pub(super) fn drive_anchor(at: usize) -> String {
    format!("drive-{at}")
}

pub(super) fn drive_name(drive: &wire::Drive) -> &str {
    match drive.name.as_str() {
        "" => &drive.id,
        name => name,
    }
}

/// Why a list has no rows.
fn nothing(html: &mut Html, answers: &Answers, list: &'static str, none: &str) {
    let text = match answers.lost.contains(&list) {
        true => format!("The {list} are missing in the bundle."),
        false => none.to_owned(),
    };
    html.text_in("p", &[("class", "faint")], &text);
}

pub(super) fn drives(answers: &Answers, screen: &Screen, html: &mut Html) {
    if answers.drives.is_empty() {
        return nothing(html, answers, "drives", "No drives.");
    }
    let mut sorted: Vec<(usize, &wire::Drive)> = answers.drives.iter().enumerate().collect();
    sorted
        .sort_by_cached_key(|(_, it)| (rank(it.health), label::sort_key(&it.name), it.id.clone()));
    let columns = [
        "Drive",
        "Health",
        "Model and serial number",
        "Size",
        "Temperature",
        "Wear",
        "Hours",
        "History",
    ];
    let caption = "All drives, the worst first";
    table(html, caption, &columns, |html| {
        for (at, drive) in sorted {
            let anchor = drive_anchor(at);
            html.element("tr", &[("id", anchor.as_str())], |html| {
                drive_row(drive, answers, screen, html);
            });
        }
    });
}

fn drive_row(drive: &wire::Drive, answers: &Answers, screen: &Screen, html: &mut Html) {
    html.element("th", &[("scope", "row")], |html| {
        html.text(drive_name(drive));
        let slot = drive.location.as_ref().map_or("", |it| slot_name(&it.slot));
        if !slot.is_empty() {
            html.text_in("span", &[("class", "sub")], &format!("slot {slot}"));
        }
    });
    html.element("td", &[("class", "wide")], |html| {
        badge(html, health(drive.health).0, health_class(drive.health));
        let mut notes: Vec<&str> = drive.findings.iter().map(|it| it.reason.as_str()).collect();
        let marks = [
            (drive.presence() == wire::Presence::Missing, "missing"),
            (drive.maintenance, "under maintenance"),
            (drive.asleep, "asleep"),
        ];
        notes.extend(marks.iter().filter(|(set, _)| *set).map(|(_, name)| *name));
        html.text_in("span", &[("class", "sub")], &notes.join(", "));
    });
    html.element("td", &[("class", "wide")], |html| {
        html.text(or_dash(drive.model.trim()));
        let serial = [drive.serial.trim(), &drive.firmware].map(str::trim);
        let serial: Vec<&str> = serial.into_iter().filter(|it| !it.is_empty()).collect();
        html.text_in("span", &[("class", "sub")], &serial.join(", firmware "));
        if !drive.member_of.is_empty() {
            let members = format!("member of {}", drive.member_of.join(", "));
            html.text_in("span", &[("class", "sub")], &members);
        }
    });
    html.element("td", &[("class", "nowrap")], |html| {
        html.text(&bytes(drive.size_bytes));
        html.text_in("span", &[("class", "sub")], &kind(drive));
    });
    let data = drive.smart.as_ref();
    html.element("td", &[("class", "nowrap")], |html| {
        temperature(data, html);
    });
    html.element("td", &[("class", "nowrap")], |html| match data.and_then(|it| it.wear_percent) {
        Some(percent) => {
            html.text(&format!("{percent} %"));
            meter(html, u64::from(percent), percent >= 80, percent >= 100);
        }
        None => html.text("–"),
    });
    let hours = smart::power_on_hours(drive);
    let hours = if hours.is_empty() { "–" } else { &hours };
    html.text_in("td", &[("class", "num")], hours);
    html.element("td", &[], |html| {
        let history = answers.histories.iter().find(|it| it.drive_id == drive.id);
        match data {
            Some(data) => {
                not_answered(data, screen, html);
                sparkline::cell(history, screen, html);
            }
            None => {
                let basis = Some(drive.health_basis.as_str()).filter(|it| !it.is_empty());
                html.text_in("span", &[("class", "faint")], basis.unwrap_or("no SMART data"));
            }
        }
    });
}

/// The values of a drive that does not answer are of an earlier time.
fn not_answered(data: &wire::Smart, screen: &Screen, html: &mut Html) {
    use wire::smart::State;
    let word = match data.state() {
        State::Answered | State::Unspecified => return,
        State::Waiting => "not queried yet",
        State::Asleep => "asleep",
        State::NotApplicable => "no SMART data",
        State::Failed => "the last query failed",
        State::Stuck => "smartctl hangs",
    };
    let detail = match data.detail.as_str() {
        "" => String::new(),
        detail => format!(": {}", screen.local_times(detail)),
    };
    let age = match &data.answered {
        Some(time) => format!("; values of {}", screen.date_time(Some(time))),
        None => String::new(),
    };
    let text = format!("{word}{detail}{age}");
    html.text_in("span", &[("class", "sub")], &text);
}

fn temperature(data: Option<&wire::Smart>, html: &mut Html) {
    let Some(data) = data.filter(|it| it.temperature_celsius.is_some()) else {
        return html.text("–");
    };
    let now = data.temperature_celsius.unwrap_or(0);
    html.text(&format!("{now} °C"));
    match data.temperature_limit_celsius.filter(|limit| *limit > 0) {
        Some(limit) => {
            let share = i64::from(now.max(0)) * 100 / i64::from(limit);
            let share = u64::try_from(share).unwrap_or(0);
            meter(html, share, share >= 90, now > limit);
            html.text_in("span", &[("class", "sub")], &format!("limit {limit} °C"));
        }
        None => html.text_in("span", &[("class", "sub")], "no limit reported"),
    }
}

/// A bar; the number is beside it as text.
fn meter(html: &mut Html, percent: u64, warning: bool, critical: bool) {
    let class = match (warning, critical) {
        (_, true) => "meter bad",
        (true, _) => "meter suspect",
        _ => "meter",
    };
    let width = percent.min(100).to_string();
    let attributes = [
        ("class", class),
        ("viewBox", "0 0 100 6"),
        ("preserveAspectRatio", "none"),
        ("aria-hidden", "true"),
    ];
    html.element("svg", &attributes, |html| {
        html.element("rect", &[("width", width.as_str()), ("height", "6")], |_| {});
    });
}

pub(super) fn volumes(answers: &Answers, screen: &Screen, html: &mut Html) {
    if answers.volumes.is_empty() {
        return nothing(html, answers, "volumes", "No volumes.");
    }
    let mut sorted: Vec<(String, &wire::Volume)> =
        answers.volumes.iter().map(|volume| (render_volumes::place(volume), volume)).collect();
    sorted.sort_by_cached_key(|(place, volume)| render_volumes::order(place, volume));
    let columns = ["Where", "Health", "Used", "Size", "Full", "Filesystem", "Device"];
    let caption = "All filesystems and volumes, the worst first";
    table(html, caption, &columns, |html| {
        for (place, volume) in sorted.iter().take(MAX_VOLUMES) {
            html.element("tr", &[], |html| volume_row(place, volume, screen, html));
        }
    });
    let hidden: Vec<&wire::Volume> = sorted.iter().skip(MAX_VOLUMES).map(|(_, it)| *it).collect();
    if !hidden.is_empty() {
        let adverse = hidden.iter().filter(|it| rank(it.health) != 3).count();
        let text = format!(
            "And {} ({adverse} not in good health): diskvitals volumes.",
            counted(hidden.len() as u64, "more volume")
        );
        html.text_in("p", &[], &text);
    }
}

fn volume_row(place: &str, volume: &wire::Volume, screen: &Screen, html: &mut Html) {
    html.element("th", &[("scope", "row")], |html| {
        html.text(place);
        let mount = volume.mounts.iter().map(|it| it.path.as_str());
        let mount = mount.min_by_key(|it| it.len()).unwrap_or_default();
        let known = [volume.pv.as_str(), mount];
        let other = known.into_iter().find(|it| !it.is_empty() && *it != place);
        html.text_in("span", &[("class", "sub")], other.unwrap_or_default());
    });
    html.element("td", &[("class", "wide")], |html| {
        badge(html, health(volume.health).0, health_class(volume.health));
        let reasons: Vec<&str> = volume.findings.iter().map(|it| it.reason.as_str()).collect();
        html.text_in("span", &[("class", "sub")], &reasons.join(", "));
    });
    html.element("td", &[("class", "nowrap")], |html| {
        let usage = volume.usage.as_ref();
        match usage.and_then(|it| Some((it, used_percent(it)?))) {
            Some((usage, percent)) => {
                html.text(&used_share(usage).unwrap_or_default());
                meter(html, percent, percent >= NEARLY_FULL, percent >= 98);
                if let Some(since) = &usage.stale_since {
                    let text = format!("as of {}", screen.date_time(Some(since)));
                    html.text_in("span", &[("class", "sub")], &text);
                }
            }
            None => html.text("–"),
        }
    });
    let size = volume.capacity.map(|it| bytes(it.total_bytes));
    html.text_in("td", &[("class", "nowrap")], size.as_deref().unwrap_or("–"));
    let full = volume.usage.as_ref().and_then(|it| it.full_at.as_ref());
    let full = full.map(|time| screen.date_time(Some(time)).chars().take(10).collect::<String>());
    html.text_in("td", &[("class", "nowrap")], full.as_deref().unwrap_or("–"));
    let kind = match volume.block {
        true => "block",
        false => volume.filesystem.as_ref().map_or("–", |it| it.r#type.as_str()),
    };
    html.text_in("td", &[], kind);
    let device = match crate::render::volumes::device(volume) {
        "" if volume.remote => "remote",
        name => or_dash(name),
    };
    html.element("td", &[], |html| {
        html.text(device);
        let scrubs = volume.scrubs.iter().map(|it| render_volumes::scrub(it, screen));
        let scrubs: Vec<String> = scrubs.collect();
        html.text_in("span", &[("class", "sub")], &scrubs.join("; "));
    });
}

pub(super) fn checks(answers: &Answers, screen: &Screen, html: &mut Html) {
    if answers.checks.is_empty() {
        return nothing(html, answers, "checks", "No filesystem has been checked.");
    }
    let columns = ["Filesystem", "Verdict", "Mode", "Ended", "Why"];
    table(html, "Filesystem checks, newest first", &columns, |html| {
        for check in answers.checks.iter().take(MAX_CHECKS) {
            let (verdict, tone) = render_checks::verdict(check);
            let class = match tone {
                diskvitals_terminal::screen::Tone::Good => "good",
                diskvitals_terminal::screen::Tone::Critical => "bad",
                diskvitals_terminal::screen::Tone::Warning => "suspect",
                _ => "none",
            };
            html.element("tr", &[], |html| {
                html.text_in("th", &[("scope", "row")], &check.target);
                html.element("td", &[], |html| badge(html, &verdict, class));
                html.text_in("td", &[], &render_checks::mode(check.mode()));
                html.text_in("td", &[], &screen.date_time(check.ended.as_ref()));
                html.text_in("td", &[], &render_checks::reason(check));
            });
        }
    });
    if answers.checks.len() > MAX_CHECKS {
        let more = answers.checks.len() - MAX_CHECKS;
        html.text_in("p", &[], &format!("And {more} older ones."));
    }
}

/// The newest self-test of each drive; of those that failed or run, first.
pub(super) fn self_tests(answers: &Answers, screen: &Screen, html: &mut Html) {
    let tests = || {
        let drives = answers.drives.iter();
        drives.filter_map(|drive| Some((drive, drive.smart.as_ref()?.self_tests.as_ref()?)))
    };
    let mut rows: Vec<(u8, &wire::Drive, &wire::SelfTests)> = tests()
        .filter(|(_, tests)| {
            !tests.log.is_empty()
                || tests.running_remaining_percent.is_some()
                || tests.requested.is_some()
        })
        .map(|(drive, tests)| {
            let failed = tests.log.first().is_some_and(|it| it.outcome == "failed");
            (u8::from(!failed), drive, tests)
        })
        .collect();
    if rows.is_empty() {
        return html.text_in(
            "p",
            &[("class", "faint")],
            match tests().next() {
                Some(_) => "No self-test log that was read has a record of a test.",
                None => "No self-test log was read.",
            },
        );
    }
    rows.sort_by_cached_key(|(rank, drive, _)| (*rank, label::sort_key(&drive.name)));
    let columns = ["Drive", "Test", "Result", "At hour", "Message"];
    table(html, "Last self-test of each drive", &columns, |html| {
        for (_, drive, tests) in rows.iter().take(MAX_SELF_TESTS) {
            html.element("tr", &[], |html| {
                html.text_in("th", &[("scope", "row")], drive_name(drive));
                self_test_cells(tests, screen, html);
            });
        }
    });
}

fn self_test_cells(tests: &wire::SelfTests, screen: &Screen, html: &mut Html) {
    if let Some(percent) = tests.running_remaining_percent {
        html.text_in("td", &[], "");
        html.element("td", &[], |html| badge(html, "running", "none"));
        html.text_in("td", &[], "");
        html.text_in("td", &[], &format!("{percent} % remaining"));
        return;
    }
    if let Some(test) = tests.log.first() {
        let class = match test.outcome.as_str() {
            "passed" => "good",
            "failed" => "bad",
            _ => "none",
        };
        html.text_in("td", &[], &test.kind);
        html.element("td", &[], |html| badge(html, &test.outcome, class));
        let hours = test.hours.map(|it| it.to_string()).unwrap_or_default();
        html.text_in("td", &[("class", "num")], &hours);
        let lba = test.lba.map(|it| format!(", sector {it}")).unwrap_or_default();
        html.text_in("td", &[], &format!("{}{lba}", test.text));
        return;
    }
    let requested = tests.requested.clone().unwrap_or_default();
    html.text_in("td", &[], "requested");
    let word = if requested.started { "started" } else { "refused" };
    html.element("td", &[], |html| badge(html, word, "none"));
    html.text_in("td", &[], "");
    let time = screen.date_time(requested.time.as_ref());
    html.text_in("td", &[], &format!("{time}: {}", requested.text));
}
