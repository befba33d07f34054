//! `status` in its forms: a screen, JSON, a monitoring system's output, watched.
//!
//! In: the daemon's answers about the whole node. Out: text and the exit status.

use std::io::IsTerminal;
use std::process::ExitCode;

use crate::args::Args;
use crate::args::status::{MonitoringFormat, StatusArgs, WatchArgs};
use crate::error::Error;
use crate::printer::{Printer, print_json, print_text};
use crate::render::status::{StatusView, screen, verdict};
use crate::render::{checkmk, nagios};
use crate::{complain, json, live, watch};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// Everything that the screen shows.
struct Answers {
    node: wire::Node,
    drives: wire::ListDrivesResponse,
    volumes: wire::ListVolumesResponse,
    findings: wire::ListFindingsResponse,
    causes: Option<wire::ListCausesResponse>,
}

impl Answers {
    async fn ask(client: &Client) -> Result<Answers, ClientError> {
        let (node, drives, volumes, findings, causes) = tokio::try_join!(
            client.node(),
            client.drives(),
            client.volumes(),
            client.findings(false),
            client.causes(),
        )?;
        Ok(Answers { node, drives, volumes, findings, causes })
    }

    fn view(&self) -> StatusView<'_> {
        StatusView {
            node: &self.node,
            drives: &self.drives.drives,
            volumes: &self.volumes.volumes,
            findings: &self.findings.findings,
            causes: self.causes.as_ref().map(|answer| answer.causes.as_slice()),
        }
    }
}

pub async fn run(out: &Printer, args: &Args, status: &StatusArgs) -> Result<ExitCode, Error> {
    match status.format {
        Some(_) if out.json => {
            complain("give either --format or -o json");
            Ok(ExitCode::from(Verdict::Unknown.exit_code()))
        }
        Some(format) => monitoring(args, format).await,
        None if status.watch => watched(out, args).await,
        None => once(out, args, status.exit_code).await,
    }
}

async fn once(out: &Printer, args: &Args, exit_code: bool) -> Result<ExitCode, Error> {
    let client = Client::connect(&args.socket, args.timeout).await?;
    let answers = Answers::ask(&client).await?;
    if out.json {
        let value = document(&answers.node, answers.causes.clone())?;
        print_json(&format!("{value:#}"))?;
    } else {
        print_text(&screen(&answers.view(), &out.screen))?;
    }
    let verdict = exit_code.then(|| verdict(&answers.view()).exit_code());
    Ok(verdict.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// The node's own members, and the causes of an answer of their own.
fn document(
    node: &wire::Node,
    causes: Option<wire::ListCausesResponse>,
) -> Result<serde_json::Value, Error> {
    let mut value = json::value("Node", node)?;
    let causes = json::value("ListCausesResponse", &causes.unwrap_or_default())?;
    value["causes"] = causes["causes"].clone();
    Ok(value)
}

/// The screen; without a terminal, the lines of `watch`.
async fn watched(out: &Printer, args: &Args) -> Result<ExitCode, Error> {
    let newest = async |client: &Client| {
        let (node, causes) = tokio::try_join!(client.node(), client.causes())?;
        document(&node, causes)
    };
    // A terminal that knows no escape codes gets lines too.
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match (out.json, std::io::stdout().is_terminal() && !dumb) {
        (true, _) => live::json_lines(args, newest).await,
        (false, true) => live::run(out, args).await,
        (false, false) => watch::run(out, args, &WatchArgs::default()).await,
    }
}

/// Without an answer, the state is unknown, in one line on standard output: a monitoring system reads
/// no other.
async fn monitoring(args: &Args, format: MonitoringFormat) -> Result<ExitCode, Error> {
    let answers = match ask_once(args).await {
        // The daemon may have just restarted.
        Err(ClientError::ConnectionLost { .. }) => ask_once(args).await,
        answered => answered,
    };
    let (text, status) = match (&answers, format) {
        (Ok(answers), MonitoringFormat::Nagios) => {
            (nagios::output(&answers.view()), verdict(&answers.view()).exit_code())
        }
        (Err(error), MonitoringFormat::Nagios) => {
            (nagios::unknown(&with_causes(error)), Verdict::Unknown.exit_code())
        }
        // Each line of a local check has its own state.
        (Ok(answers), MonitoringFormat::Checkmk) => (checkmk::output(&answers.view()), 0),
        (Err(error), MonitoringFormat::Checkmk) => (checkmk::unknown(&with_causes(error)), 0),
    };
    print_text(&text)?;
    Ok(ExitCode::from(status))
}

async fn ask_once(args: &Args) -> Result<Answers, ClientError> {
    let client = Client::connect(&args.socket, args.timeout).await?;
    Answers::ask(&client).await
}
