//! Findings by what a person gives, a unique prefix of an id or a thing, and by filters; and the
//! acknowledgements of what was so listed.
//!
//! In: arguments, the daemon's findings. Out: the findings that are meant, or an error that says what
//! to give. An acknowledgement covers the listed findings and no later ones.

pub mod filter;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use jiff::Timestamp;

use crate::args::findings::FindingsArgs;
use crate::complain;
use crate::error::Error;
use crate::findings::filter::about;
use crate::place::by_name;
use crate::printer::{Printer, print_text};
use crate::render;
use diskvitals_finding::reason::Reason;
use diskvitals_terminal::layout::counted;
use diskvitals_terminal::{prompt, screen};
use diskvitals_text::echo::Shown;
use diskvitals_text::similar::{did_you_mean, similar};
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// Candidates that an error lists.
const MAX_CANDIDATES: usize = 10;
/// The command needs another argument, `--yes`.
const EXIT_USAGE: u8 = 2;

/// What the word of a person means.
enum Selection {
    One(Box<wire::Finding>),
    /// The findings about a thing. `left_out`: why a consequence of them is not among them.
    About {
        findings: Vec<wire::Finding>,
        left_out: Vec<String>,
    },
}

/// Lists findings, or shows those of one name in full.
pub async fn list(out: &Printer, client: &Client, args: &FindingsArgs) -> Result<ExitCode, Error> {
    let Some(word) = &args.id else {
        let findings = filtered(client, args, client.findings(args.all).await?.findings).await?;
        let answer = wire::ListFindingsResponse { findings, ..Default::default() };
        // Without findings, it matters whether all is known.
        let health = match answer.findings.is_empty() && !out.json {
            true => client.node().await?.health(),
            false => wire::Health::Good,
        };
        out.show("ListFindingsResponse", &answer, || match health {
            wire::Health::Unknown | wire::Health::Unspecified => {
                "no findings, but not everything is known: diskvitals status\n".to_owned()
            }
            _ => render::findings::table(&answer.findings, &out.screen),
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let all = client.findings(true).await?.findings;
    match select(client, word, all).await? {
        Selection::One(finding) => {
            out.show("Finding", &*finding, || render::findings::one(&finding, &out.screen))?
        }
        Selection::About { mut findings, .. } => {
            findings.retain(|finding| args.all || finding.cleared.is_none());
            let mut findings = filtered(client, args, findings).await?;
            render::findings::sort_lowest_first(&mut findings);
            let answer = wire::ListFindingsResponse { findings, ..Default::default() };
            out.show("ListFindingsResponse", &answer, || match answer.findings.as_slice() {
                [] => render::findings::table(&[], &out.screen),
                findings => findings
                    .iter()
                    .map(|it| render::findings::one(it, &out.screen))
                    .collect::<Vec<_>>()
                    .join("\n"),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The findings that pass all filters.
async fn filtered(
    client: &Client,
    args: &FindingsArgs,
    findings: Vec<wire::Finding>,
) -> Result<Vec<wire::Finding>, Error> {
    for wanted in &args.filter.reason {
        known_reason(wanted, &findings)?;
    }
    let mut kept = filter::Resolved::ask(client, &args.filter).await?.keep(findings);
    let begun = |finding: &wire::Finding, after: Timestamp| {
        let cleared = finding.cleared.as_ref().and_then(|it| it.time.as_ref());
        let times = finding.since.as_ref().into_iter().chain(cleared);
        times.filter_map(screen::timestamp).any(|time| time >= after)
    };
    kept.retain(|finding| args.since.is_none_or(|since| begun(finding, since.time())));
    Ok(kept)
}

/// A reason that neither this program nor a finding has is a typing mistake.
pub(crate) fn known_reason(wanted: &str, findings: &[wire::Finding]) -> Result<(), Error> {
    let names: BTreeSet<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.name())
        .chain(findings.iter().map(|finding| finding.reason.as_str()))
        .collect();
    match names.iter().any(|name| name.eq_ignore_ascii_case(wanted)) {
        true => Ok(()),
        false => Err(Error::UnknownReason {
            name: wanted.to_owned(),
            hint: did_you_mean(&similar(wanted, names)),
        }),
    }
}

/// An exact id first, then a thing by any of its names, then a unique prefix of an id.
async fn select(client: &Client, word: &str, all: Vec<wire::Finding>) -> Result<Selection, Error> {
    if let Some(finding) = all.iter().find(|finding| finding.id == word) {
        return Ok(Selection::One(Box::new(finding.clone())));
    }
    let prefixed: Vec<&wire::Finding> =
        all.iter().filter(|finding| !word.is_empty() && finding.id.starts_with(word)).collect();
    let ambiguous = |mut candidates: String, thing: Option<&str>| {
        if let Some(thing) = thing {
            candidates.push_str(&format!(", and {thing}, whose serial ends with it"));
        }
        Error::AmbiguousFinding { prefix: word.to_owned(), candidates }
    };
    match client.explain(word).await {
        Ok(explained) => {
            let drive = explained.drives.first().filter(|drive| {
                let serial = drive.serial.to_ascii_lowercase();
                serial.len() > word.len() && serial.ends_with(&word.to_ascii_lowercase())
            });
            match (prefixed.as_slice(), drive) {
                (several @ [_, ..], Some(drive)) => {
                    Err(ambiguous(candidates(several), Some(drive.name.as_str())))
                }
                _ => Ok(selected(&explained, &all)),
            }
        }
        Err(error) if error.is_not_found() => match prefixed.as_slice() {
            [one] => Ok(Selection::One(Box::new((*one).clone()))),
            // Perhaps it is a path.
            [] => {
                let explained = by_name(client, word, async |word| client.explain(word).await);
                Ok(selected(&explained.await?, &all))
            }
            several => Err(ambiguous(candidates(several), None)),
        },
        Err(error) => Err(error.into()),
    }
}

fn selected(explained: &wire::Explanation, all: &[wire::Finding]) -> Selection {
    let (found, left_out): (Vec<_>, Vec<_>) =
        about(explained, all).into_iter().partition(|(_, obstacle)| obstacle.is_none());
    Selection::About {
        findings: found.into_iter().map(|(finding, _)| finding).collect(),
        left_out: left_out.into_iter().filter_map(|(_, why)| why).collect(),
    }
}

fn candidates(findings: &[&wire::Finding]) -> String {
    let shown = findings.iter().take(MAX_CANDIDATES).map(|finding| {
        let subject = render::findings::subject(finding);
        format!("{} ({} of {subject})", finding.id, finding.reason)
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = findings.len().checked_sub(MAX_CANDIDATES) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The volume has another drive with findings that count.
pub(super) fn obstacle(
    finding: &wire::Finding,
    volume: &wire::Volume,
    named: &BTreeSet<&str>,
    all: &[wire::Finding],
) -> Option<String> {
    let counts = |of: &wire::Finding| of.is_counted() && of.severity() > wire::Severity::Info;
    let others = volume.drive_ids.iter().filter(|id| !named.contains(id.as_str()));
    let failing = others.filter(|id| {
        all.iter().any(|other| {
            counts(other)
                && other.subject.as_ref().is_some_and(|subject| {
                    subject.kind() == wire::SubjectKind::Drive && subject.id == **id
                })
        })
    });
    let failing: Vec<&str> = failing.map(String::as_str).collect();
    (!failing.is_empty()).then(|| {
        format!(
            "not among them: {} of {} ({}), since {} has findings too",
            finding.reason,
            volume.id,
            finding.id,
            failing.join(", ")
        )
    })
}

/// What to do with a finding that was listed.
#[derive(Clone, Copy)]
enum Change<'a> {
    Acknowledge { note: &'a str, repaired: bool },
    Unacknowledge,
}

impl Change<'_> {
    fn applies_to(self, finding: &wire::Finding) -> bool {
        let is_wanted = match self {
            // A repair may follow what was acknowledged before.
            Change::Acknowledge { repaired: true, .. } => true,
            Change::Acknowledge { .. } => finding.acknowledged.is_none(),
            Change::Unacknowledge => finding.acknowledged.is_some(),
        };
        finding.cleared.is_none() && is_wanted
    }

    fn verb(self) -> &'static str {
        match self {
            Change::Acknowledge { .. } => "acknowledge",
            Change::Unacknowledge => "withdraw the acknowledgement of",
        }
    }

    async fn apply(
        self,
        client: &Client,
        finding: &wire::Finding,
    ) -> Result<wire::Finding, ClientError> {
        match self {
            Change::Acknowledge { note, repaired } => {
                client.acknowledge(finding, note, repaired).await
            }
            Change::Unacknowledge => client.unacknowledge(&finding.id).await,
        }
    }
}

pub async fn acknowledge(
    out: &Printer,
    client: &Client,
    word: &str,
    (note, repaired): (&str, bool),
    yes: bool,
) -> Result<ExitCode, Error> {
    let change_to = Change::Acknowledge { note, repaired };
    change(out, client, word, change_to, yes).await
}

pub async fn unacknowledge(
    out: &Printer,
    client: &Client,
    word: &str,
    yes: bool,
) -> Result<ExitCode, Error> {
    change(out, client, word, Change::Unacknowledge, yes).await
}

/// One finding is changed at once. The findings of a thing are listed, and changed after a question.
async fn change(
    out: &Printer,
    client: &Client,
    word: &str,
    change: Change<'_>,
    yes: bool,
) -> Result<ExitCode, Error> {
    let all = client.findings(true).await?.findings;
    let selection = match select(client, word, all).await {
        // Whether it exists and may be changed is for the daemon to say.
        Err(Error::Client(error)) if error.is_not_found() && is_finding_id(word) => {
            Selection::One(Box::new(wire::Finding { id: word.to_owned(), ..Default::default() }))
        }
        selected => selected?,
    };
    let (mut findings, left_out) = match selection {
        Selection::One(finding) => {
            if finding.cleared.is_some() {
                return Err(Error::FindingCleared(finding.id));
            }
            let answer = change.apply(client, &finding).await?;
            out.show("Finding", &answer, || render::findings::one(&answer, &out.screen))?;
            return Ok(ExitCode::SUCCESS);
        }
        Selection::About { findings, left_out } => (findings, left_out),
    };
    findings.retain(|finding| change.applies_to(finding));
    let text = listing(&findings, &left_out, word, change, out);
    if out.json {
        write_stderr(&text);
    } else {
        print_text(&text)?;
    }
    if !findings.is_empty() && !yes && !confirmed(findings.len(), change).await? {
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let (changed, failed) = apply_all(client, &findings, change).await?;
    let answer = wire::ListFindingsResponse { findings: changed, ..Default::default() };
    out.show("ListFindingsResponse", &answer, || match (answer.findings.len() as u64, change) {
        (0, _) => String::new(),
        (count, Change::Acknowledge { .. }) => {
            format!("acknowledged {}\n", counted(count, "finding"))
        }
        (count, Change::Unacknowledge) => {
            format!("withdrew the acknowledgement of {}\n", counted(count, "finding"))
        }
    })?;
    Ok(ExitCode::from(u8::from(failed)))
}

fn is_finding_id(word: &str) -> bool {
    word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn listing(
    findings: &[wire::Finding],
    left_out: &[String],
    word: &str,
    change: Change<'_>,
    out: &Printer,
) -> String {
    let mut text = match findings {
        [] => format!(
            "nothing to {} about {}\n",
            match change {
                Change::Acknowledge { .. } => "acknowledge",
                Change::Unacknowledge => "withdraw",
            },
            screen::escape_control(word)
        ),
        findings => render::findings::table(findings, &out.screen),
    };
    for line in left_out {
        text.push_str(&diskvitals_terminal::layout::wrapped(line, "", &out.screen));
    }
    text
}

/// Changes exactly the listed findings. Returns the changed ones, and whether one that is still there
/// was not changed.
async fn apply_all(
    client: &Client,
    findings: &[wire::Finding],
    change: Change<'_>,
) -> Result<(Vec<wire::Finding>, bool), Error> {
    let (mut changed, mut failed) = (Vec::new(), false);
    for listed in findings {
        let name =
            format!("{} {} of {}", listed.id, listed.reason, render::findings::subject(listed));
        match change.apply(client, listed).await {
            Ok(now) => {
                if (now.severity, now.status) != (listed.severity, listed.status) {
                    complain(&format!("{name} has changed meanwhile: {}", now.message));
                }
                changed.push(now);
            }
            Err(error) if error.is_not_found() => {
                complain(&format!("{name} has ended meanwhile"));
            }
            // It has become worse, or is no longer acknowledged.
            Err(error) if error.is_failed_precondition() => {
                failed |= matches!(change, Change::Acknowledge { .. });
                complain(&error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((changed, failed))
}

/// Asks on a terminal. Elsewhere `--yes` is required.
async fn confirmed(count: usize, change: Change<'_>) -> Result<bool, Error> {
    let what = match count {
        1 => "this finding".to_owned(),
        count => format!("these {count} findings"),
    };
    if !prompt::is_possible() {
        complain(&format!(
            "nothing is changed: --yes is needed to {} {what} without a question",
            change.verb()
        ));
        return Ok(false);
    }
    let question = format!("{} {what}?", capitalized(change.verb()));
    let agreed = prompt::agrees(&question).await.map_err(Error::Input)?;
    if !agreed {
        complain("nothing is changed");
    }
    Ok(agreed)
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn write_stderr(text: &str) {
    let mut error = io::stderr();
    // The error cannot be reported on an unwritable standard error.
    let _ = error.write_all(Shown::screen(text).as_str().as_bytes()).and_then(|()| error.flush());
}

#[cfg(test)]
mod tests;
