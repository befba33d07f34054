//! The page: its head, what is not complete, drives by slot, what is not known, what has cleared; the
//! other sections have modules of their own.

use crate::answers::Answers;
use crate::render::findings;
use crate::render::status::{Gap, gaps, unknown_by_reason, unknown_count};
use crate::report::html::{Html, badge, section, table};
use crate::report::{causes, graph, health_class, map, node_verdict, tables};
use crate::words::{health, severity_word};
use diskvitals_model::label;
use diskvitals_terminal::layout::counted;
use diskvitals_terminal::screen::Screen;
use diskvitals_terminal::verdict::Verdict;
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;

const STYLE: &str = include_str!("page.css");
/// No script, no request, whatever the page contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// With more drives, their tiles would push the causes off the screen.
const MAX_BAYS_FIRST: usize = 24;
const MAX_CLEARED: usize = 100;
const MAX_UNKNOWN_NAMES: usize = 40;

pub(crate) fn report(answers: &Answers, screen: &Screen) -> String {
    let screen = &Screen { width: None, color: false, ..screen.clone() };
    let title = format!("Storage of {}", answers.node.name);
    Html::page(&title, STYLE, POLICY, |html| {
        html.element("header", &[], |html| head(answers, screen, html));
        html.element("main", &[], |html| {
            incomplete(answers, html);
            let few = answers.drives.len() <= MAX_BAYS_FIRST;
            if few {
                bays(answers, html);
            }
            cordons(answers, screen, html);
            causes::all(answers, screen, html);
            if !few {
                bays(answers, html);
            }
            section(html, "map", "What stands on what", |html| {
                map::draw(&graph::graph(answers), html);
            });
            section(html, "drives", "Drives", |html| {
                tables::drives(answers, screen, html);
            });
            section(html, "filesystems", "Filesystems and volumes", |html| {
                tables::volumes(answers, screen, html);
            });
            section(html, "checks", "Checks and self-tests", |html| {
                tables::checks(answers, screen, html);
                tables::self_tests(answers, screen, html);
            });
            section(html, "unknown", "What could not be observed", |html| {
                unobserved(answers, screen, html);
            });
            cleared(answers, screen, html);
        });
        html.element("footer", &[], |html| foot(answers, html));
    })
}

fn head(answers: &Answers, screen: &Screen, html: &mut Html) {
    let node = &answers.node;
    html.text_in("h1", &[], &format!("Storage of {}", node.name));
    let (word, class) = match node_verdict(answers) {
        Verdict::Good => ("GOOD", "good"),
        Verdict::Warning => ("WARNING", "suspect"),
        Verdict::Critical => ("CRITICAL", "bad"),
        Verdict::Unknown => ("UNKNOWN", "unknown"),
    };
    html.element("div", &[("class", "verdict")], |html| {
        badge(html, word, class);
        html.text_in("span", &[], &summary(answers));
    });
    let taken = prost_types::Timestamp { seconds: answers.taken.as_second(), nanos: 0 };
    let facts = [
        ("Time", screen.zoned(&taken)),
        ("Linux", node.kernel.clone()),
        ("diskvitalsd", node.version.clone()),
        ("Running since", screen.date_time(node.started.as_ref())),
        ("History", node.store.clone()),
    ];
    html.element("dl", &[("class", "facts")], |html| {
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            html.element("div", &[], |html| {
                html.text_in("dt", &[], name);
                html.text_in("dd", &[], value);
            });
        }
    });
}

/// `2 drives failing, …`: numbers of the lists that are complete.
pub(super) fn summary(answers: &Answers) -> String {
    let number = |list: &'static str, count: usize, name: &str| match answers.lost.contains(&list) {
        true => format!("an unknown number of {list}"),
        false => counted(count as u64, name),
    };
    let active = answers.active_findings().count();
    let mut parts = vec![
        number("drives", answers.drives.len(), "drive"),
        number("volumes", answers.volumes.len(), "volume"),
    ];
    parts.extend(unknown_count(&answers.drives, &answers.volumes));
    let causes = answers.causes().len();
    parts.push(match (answers.lost.contains(&"findings"), causes, active) {
        (true, _, _) => "an unknown number of findings".to_owned(),
        (_, 0, 0) if node_verdict(answers) == Verdict::Good => "nothing wrong".to_owned(),
        (_, 0, 0) => "no findings".to_owned(),
        (_, 0, active) => counted(active as u64, "active finding"),
        (_, causes, active) => {
            format!("{} ({})", counted(causes as u64, "cause"), counted(active as u64, "finding"))
        }
    });
    if !answers.node.settled && !answers.lost.contains(&"the node") {
        parts.push("the first scan is not complete yet".to_owned());
    }
    parts.join(", ")
}

fn incomplete(answers: &Answers, html: &mut Html) {
    if answers.gaps.is_empty() {
        return;
    }
    let label = [("class", "notice"), ("aria-labelledby", "incomplete-title")];
    html.element("section", &label, |html| {
        html.text_in("h2", &[("id", "incomplete-title")], "This report is not complete");
        html.element("ul", &[], |html| {
            for gap in &answers.gaps {
                html.text_in("li", &[], gap);
            }
        });
    });
}

/// The drives in the order of their slots.
fn bays(answers: &Answers, html: &mut Html) {
    if answers.drives.is_empty() {
        return;
    }
    let mut drives: Vec<(usize, &wire::Drive)> = answers.drives.iter().enumerate().collect();
    let slot = |drive: &wire::Drive| {
        let location = drive.location.as_ref();
        location.map_or_else(String::new, |it| slot_name(&it.slot).to_owned())
    };
    drives.sort_by_cached_key(|(_, drive)| {
        let slot = slot(drive);
        (slot.is_empty(), label::sort_key(&slot), label::sort_key(&drive.name))
    });
    let title = match drives.iter().any(|(_, drive)| !slot(drive).is_empty()) {
        true => "Drives by slot",
        false => "Drives at a glance",
    };
    section(html, "bays", title, |html| {
        html.element("ul", &[("class", "bays")], |html| {
            for (at, drive) in drives {
                html.element("li", &[], |html| {
                    let target = format!("#{}", tables::drive_anchor(at));
                    let class = health_class(drive.health);
                    html.element("a", &[("href", &target), ("class", class)], |html| {
                        html.text_in("strong", &[], tables::drive_name(drive));
                        let missing = match drive.presence() {
                            wire::Presence::Missing => ", missing",
                            _ => "",
                        };
                        let word = format!("{}{missing}", health(drive.health).0);
                        html.text_in("span", &[("class", "word")], &word);
                        let slot = slot(drive);
                        let temperature = crate::render::smart::temperature(drive);
                        let parts: Vec<String> = [("slot ", slot), ("", temperature)]
                            .into_iter()
                            .filter(|(_, text)| !text.is_empty())
                            .map(|(label, text)| format!("{label}{text}"))
                            .collect();
                        if !parts.is_empty() {
                            html.text_in("span", &[("class", "sub")], &parts.join(", "));
                        }
                    });
                });
            }
        });
    });
}

/// Why the pool takes no new volumes.
fn cordons(answers: &Answers, screen: &Screen, html: &mut Html) {
    let cordons = &answers.node.pool_cordons;
    if cordons.is_empty() {
        return;
    }
    section(html, "cordon", "No new volumes", |html| {
        for cordon in cordons {
            html.text_in("p", &[], &screen.local_times(&cordon.message));
        }
    });
}

fn unobserved(answers: &Answers, screen: &Screen, html: &mut Html) {
    let unknown = unknown_by_reason(&answers.drives, &answers.volumes);
    let sources = match answers.lost.contains(&"the node") {
        true => Vec::new(),
        false => gaps(&answers.node, screen),
    };
    if unknown.is_empty() && sources.is_empty() {
        let text = match answers.lost.is_empty() {
            true => "All sources answered, for every drive and volume.",
            false => "This report is not complete: see above.",
        };
        html.text_in("p", &[], text);
        return;
    }
    if !unknown.is_empty() {
        table(html, "Health unknown", &["Drive or volume", "Why"], |html| {
            for (why, names) in &unknown {
                let shown = names.iter().take(MAX_UNKNOWN_NAMES).cloned();
                let shown: Vec<String> = shown.collect();
                let more = match names.len().saturating_sub(MAX_UNKNOWN_NAMES) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                html.element("tr", &[], |html| {
                    let names = format!("{}{more}", shown.join(", "));
                    html.text_in("th", &[("scope", "row")], &names);
                    html.text_in("td", &[], &screen.local_times(why));
                });
            }
        });
    }
    if !sources.is_empty() {
        let columns = ["Source", "What is not known"];
        table(html, "Sources and limits of the daemon", &columns, |html| {
            for Gap { label, text, .. } in &sources {
                html.element("tr", &[], |html| {
                    html.text_in("th", &[("scope", "row")], label.trim_end_matches([':', ' ']));
                    html.text_in("td", &[], text);
                });
            }
        });
    }
}

/// A table that scrolls where it does not fit.
fn cleared(answers: &Answers, screen: &Screen, html: &mut Html) {
    let all: Vec<&wire::Finding> =
        answers.findings.iter().filter(|it| it.cleared.is_some()).collect();
    if all.is_empty() {
        return;
    }
    section(html, "cleared", "What has cleared", |html| {
        html.element("details", &[], |html| {
            html.text_in("summary", &[], &counted(all.len() as u64, "cleared finding"));
            let columns = ["Finding", "About", "Severity", "Since", "Cleared", "Message"];
            table(html, "Cleared findings, newest first", &columns, |html| {
                for finding in all.iter().take(MAX_CLEARED) {
                    let time = finding.cleared.as_ref().and_then(|it| it.time.as_ref());
                    html.element("tr", &[], |html| {
                        html.text_in("th", &[("scope", "row")], &finding.reason);
                        html.text_in("td", &[], &findings::subject(finding));
                        html.text_in("td", &[], severity_word(finding.severity()).0);
                        html.text_in("td", &[], &screen.date_time(finding.since.as_ref()));
                        html.text_in("td", &[], &screen.date_time(time));
                        html.text_in("td", &[], &findings::message(finding, screen));
                    });
                }
            });
            if all.len() > MAX_CLEARED {
                let more = all.len() - MAX_CLEARED;
                html.text_in("p", &[], &format!("And {more} older ones."));
            }
        });
    });
}

fn foot(answers: &Answers, html: &mut Html) {
    let redacted = match answers.redacted {
        true => " Serial numbers, WWNs and the host name are replaced by placeholders.",
        false => " It contains serial numbers and names of pods and mount points.",
    };
    html.text_in(
        "p",
        &[],
        &format!(
            "Made by diskvitals {} from the answers of the node's daemon.{redacted}",
            answers.version
        ),
    );
}
