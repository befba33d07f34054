//! Reports: the node at one time, as a page or as text, made from the API's answers only.
//!
//! In: `Answers` of the daemon or of a bundle. Out: HTML or text, a pure function of the answers and
//! the time zone. `page`, `causes` and `tables` have the sections of the page, `html` writes and escapes, `graph` and `map` draw
//! what stands on what, `sparkline` draws histories, `text` is for mail and tickets.

mod causes;
mod graph;
mod html;
mod map;
pub(crate) mod page;
mod sparkline;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::path::Path;
use std::process::ExitCode;

use crate::answers::{self, Answers};
use crate::args::Args;
use crate::args::report::ReportArgs;
use crate::bundle::{self, write_file};
use crate::complain;
use crate::error::Error;
use crate::printer::{Printer, print_text};
use crate::render::status::{StatusView, verdict};
use diskvitals_terminal::output::write_document;
use diskvitals_terminal::screen::{Screen, bytes};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;

/// Lines of a mail have at most 78 characters (RFC 5322, 2.1.1).
const MAIL_WIDTH: u16 = 78;

pub async fn run(out: &Printer, args: &Args, report: &ReportArgs) -> Result<ExitCode, Error> {
    if out.json {
        complain("a report is a page or text: `diskvitals bundle FILE` writes all answers as JSON");
        return Ok(ExitCode::from(2));
    }
    let answers = match &report.from {
        Some(bundle) => bundle::read(bundle)?,
        None => {
            let client = Client::connect(&args.socket, args.timeout).await?;
            answers::collect(&client).await?
        }
    };
    let screen = Screen {
        width: Some(out.screen.width.unwrap_or(MAIL_WIDTH)),
        now: answers.taken,
        ..out.screen.clone()
    };
    match &report.html {
        None => print_text(&text::report(&answers, &screen))?,
        Some(file) => write_page(file, &page::report(&answers, &screen))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_page(file: &Path, page: &str) -> Result<(), Error> {
    if file.as_os_str() == "-" {
        return write_document(page.as_bytes()).map_err(Error::Output);
    }
    write_file(file, page.as_bytes(), None, true)?;
    complain(&format!("{} written, {}", file.display(), bytes(page.len() as u64)));
    Ok(())
}

/// What `status` shows of these answers; `active`: the active findings.
fn status_view<'a>(answers: &'a Answers, active: &'a [wire::Finding]) -> StatusView<'a> {
    StatusView {
        node: &answers.node,
        drives: &answers.drives,
        volumes: &answers.volumes,
        findings: active,
        causes: answers.causes.as_deref(),
    }
}

/// The verdict of `status`. Without all of the answers, nothing is good.
fn node_verdict(answers: &Answers) -> Verdict {
    let active: Vec<wire::Finding> = answers.active_findings().cloned().collect();
    let view = status_view(answers, &active);
    match verdict(&view) {
        Verdict::Good if !answers.lost.is_empty() => Verdict::Unknown,
        verdict => verdict,
    }
}

/// The class of a style; `none`: nothing is known to have a health.
fn health_class(health: i32) -> &'static str {
    match wire::Health::try_from(health) {
        Ok(wire::Health::Good) => "good",
        Ok(wire::Health::Suspect) => "suspect",
        Ok(wire::Health::Bad) => "bad",
        Ok(wire::Health::Unknown) => "unknown",
        _ => "none",
    }
}
