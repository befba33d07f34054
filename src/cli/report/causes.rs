//! What is wrong: a block for each cause, with its findings and their evidence.

use crate::answers::Answers;
use crate::render::{causes as render_causes, findings};
use crate::report::html::Html;
use crate::report::html::badge;
use crate::report::html::section;
use crate::report::html::tone_class;
use crate::report::{Verdict, node_verdict};
use crate::words::severity;
use diskvitals_terminal::layout::counted;
use diskvitals_terminal::screen::Screen;
use diskvitals_text::naming::slot_name;
use diskvitals_wire as wire;
use diskvitals_wire::cause_hit::Kind as HitKind;

/// Names on one cause; `explain` has the others too.
const MAX_HITS: usize = 40;
/// Findings of a cause with their evidence.
const MAX_FINDINGS: usize = 24;
/// Verbatim lines of one finding, and bytes of one line.
const MAX_EVIDENCE: usize = 12;
const MAX_EVIDENCE_BYTES: usize = 16 << 10;
const MAX_CAUSES: usize = 100;

pub(super) fn all(answers: &Answers, screen: &Screen, html: &mut Html) {
    section(html, "causes", "What is wrong", |html| {
        let all = answers.causes();
        html.element("div", &[("class", "causes")], |html| {
            for cause in all.iter().take(MAX_CAUSES) {
                one_cause(cause, answers, screen, html);
            }
        });
        if all.len() > MAX_CAUSES {
            let more = counted((all.len() - MAX_CAUSES) as u64, "more cause");
            html.text_in("p", &[], &format!("And {more}."));
        }
        // A daemon without causes, a bundle that ends before them.
        let without_cause = answers.causes.is_none() || answers.lost.contains(&"causes");
        let active: Vec<&wire::Finding> = answers.active_findings().collect();
        if without_cause {
            for finding in active.iter().take(MAX_CAUSES) {
                one_finding(finding, screen, html);
            }
        }
        let complete = ["causes", "findings", "drives", "volumes"];
        let is_complete = !complete.iter().any(|list| answers.lost.contains(list));
        if all.is_empty() && active.is_empty() {
            let text = match is_complete {
                true if node_verdict(answers) == Verdict::Good => "There are no findings.",
                true => {
                    "No problem was found, but not everything could be observed: see below, What could not be observed."
                }
                false => "Whether there are findings is not known: this report is not complete.",
            };
            html.text_in("p", &[], text);
        }
    });
}

fn one_cause(cause: &wire::Cause, answers: &Answers, screen: &Screen, html: &mut Html) {
    let (word, tone) = render_causes::word(cause);
    let class = format!("cause {}", tone_class(tone));
    html.element("article", &[("class", &class)], |html| {
        html.element("div", &[("class", "title")], |html| {
            html.text_in("h3", &[], &cause.name);
            badge(html, word, tone_class(tone));
            let slot = match slot_name(&cause.slot) {
                "" => String::new(),
                slot => format!("slot {slot}"),
            };
            for part in [&slot, &cause.model, &cause.serial, &cause.detail] {
                if !part.trim().is_empty() {
                    html.text_in("span", &[], part.trim());
                }
            }
        });
        let reasons = render_causes::reasons(cause).join(", ");
        html.text_in("p", &[("class", "reasons")], &reasons);
        html.element("p", &[], |html| {
            html.text(&message(cause, screen));
            let since = screen.date_time(cause.since.as_ref());
            html.text_in("span", &[("class", "faint")], &format!(" (since {since})"));
        });
        for line in render_causes::acknowledged_by(cause, &answers.findings, screen) {
            html.text_in("p", &[("class", "faint")], &line);
        }
        hits(cause, html);
        if !cause.action.is_empty() {
            html.element("p", &[("class", "todo")], |html| {
                html.text_in("strong", &[], "To do: ");
                html.text(&cause.action);
            });
        }
        let by_id = |finding: &wire::CauseFinding| {
            let id = &finding.finding_id;
            answers.active_findings().find(|it| it.id == *id)
        };
        let own: Vec<&wire::Finding> = cause.findings.iter().filter_map(by_id).collect();
        let follow: Vec<&wire::Finding> = cause.consequences.iter().filter_map(by_id).collect();
        if own.is_empty() && follow.is_empty() {
            return;
        }
        html.element("details", &[], |html| {
            let count = counted(own.len() as u64, "finding");
            let follows = match follow.len() {
                0 => String::new(),
                1 => ", and 1 that follows".to_owned(),
                more => format!(", and {more} that follow"),
            };
            let summary = format!("{count} about {}, with evidence{follows}", cause.name);
            html.text_in("summary", &[], &summary);
            for finding in own.iter().take(MAX_FINDINGS) {
                one_finding(finding, screen, html);
            }
            // Their evidence is the findings above.
            for finding in follow.iter().take(MAX_FINDINGS) {
                html.element("div", &[("class", "finding")], |html| {
                    finding_line(finding, screen, html);
                });
            }
            let more =
                own.len().saturating_sub(MAX_FINDINGS) + follow.len().saturating_sub(MAX_FINDINGS);
            if more > 0 {
                let more = counted(more as u64, "more finding");
                html.text_in("p", &[], &format!("And {more}."));
            }
        });
    });
}

fn message(cause: &wire::Cause, screen: &Screen) -> String {
    findings::message_about(&cause.message, cause.subject.as_ref(), screen)
}

fn hits(cause: &wire::Cause, html: &mut Html) {
    if cause.hits.is_empty() {
        return;
    }
    html.element("ul", &[("class", "hits")], |html| {
        for hit in cause.hits.iter().take(MAX_HITS) {
            let class = match hit.covered && !hit.last_copy {
                true => "covered",
                false => "open",
            };
            let kind = match hit.kind() {
                HitKind::Pod => "pod ",
                HitKind::Pv => "pv ",
                HitKind::Swap => "swap on ",
                HitKind::Mount | HitKind::Device | HitKind::Unspecified => "",
            };
            let covered = match (hit.covered, hit.last_copy) {
                (true, true) => format!(" ({})", render_causes::last_copy_of(cause)),
                (true, false) => " (covered by redundancy)".to_owned(),
                (false, _) => String::new(),
            };
            let reasons = render_causes::hit_reasons(hit).join(", ");
            let reasons = match reasons.is_empty() {
                true => String::new(),
                false => format!(": {reasons}"),
            };
            let text = format!("{kind}{}{covered}{reasons}", hit.name);
            html.text_in("li", &[("class", class)], &text);
        }
        let shown = cause.hits.len().min(MAX_HITS) as u64;
        let more = cause.hits.len() as u64 - shown + cause.more_hits;
        if more > 0 {
            html.text_in("li", &[("class", "covered")], &format!("{more} more"));
        }
    });
}

fn finding_line(finding: &wire::Finding, screen: &Screen, html: &mut Html) {
    let (word, tone) = severity(finding);
    html.element("p", &[], |html| {
        badge(html, word, tone_class(tone));
        html.text(" ");
        html.text_in("strong", &[], &finding.reason);
        let (subject, message) = (findings::subject(finding), findings::message(finding, screen));
        // Many messages begin with their subject.
        if !message.starts_with(&subject) {
            html.text(&format!(" of {subject}"));
        }
        html.text(&format!(": {message}"));
    });
}

fn one_finding(finding: &wire::Finding, screen: &Screen, html: &mut Html) {
    html.element("div", &[("class", "finding")], |html| {
        finding_line(finding, screen, html);
        let since = screen.date_time(finding.since.as_ref());
        let count = match finding.count {
            0 | 1 => String::new(),
            count => {
                format!(", {count} times, last {}", screen.date_time(finding.last_seen.as_ref()))
            }
        };
        let mut about = format!("Since {since}{count}. Finding {}.", finding.id);
        if let Some(cleared) = &finding.cleared {
            let time = screen.date_time(cleared.time.as_ref());
            let why = screen.local_times(&cleared.why);
            about.push_str(&format!(" Cleared {time}: {why}."));
        } else if !finding.clears_when.is_empty() {
            let when = match finding.clears_when.starts_with("never") {
                true => "",
                false => "when ",
            };
            about.push_str(&format!(" Clears {when}{}", finding.clears_when));
        }
        if let Some(ack) = &finding.acknowledged {
            about.push_str(&format!(" Acknowledged by {}: {}", ack.by, ack.note));
        }
        html.text_in("p", &[("class", "faint")], &about);
        for evidence in finding.evidence.iter().take(MAX_EVIDENCE) {
            let time = screen.date_time(evidence.time.as_ref());
            let source = format!("{}, {time}", evidence.source);
            html.text_in("p", &[("class", "faint")], &source);
            let end = evidence.text.floor_char_boundary(MAX_EVIDENCE_BYTES);
            html.element("pre", &[], |html| {
                html.lines(&evidence.text[..end]);
                if end < evidence.text.len() {
                    html.text("…");
                }
            });
        }
        let hidden = finding.evidence.len().saturating_sub(MAX_EVIDENCE);
        if hidden > 0 {
            let text = format!("And {hidden} more; a bundle has all of it.");
            html.text_in("p", &[("class", "faint")], &text);
        }
    });
}
