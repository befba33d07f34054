//! `status` in its forms: a screen, JSON, watched.
//!
//! In: the daemon's answers about the whole node. Out: text and the exit status.

use std::io::IsTerminal;
use std::process::ExitCode;

use crate::api::client::{Client, ClientError};
use crate::api::wire;
use crate::cli::args::Args;
use crate::cli::args::status::{StatusArgs, WatchArgs};
use crate::cli::error::Error;
use crate::cli::printer::{Printer, print_bytes};
use crate::cli::render::status::{StatusView, screen, verdict};
use crate::cli::{json, live, watch};

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
        Ok(Answers {
            node,
            drives,
            volumes,
            findings,
            causes,
        })
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

pub(crate) async fn run(
    out: &Printer,
    args: &Args,
    status: &StatusArgs,
) -> Result<ExitCode, Error> {
    match status.watch {
        true => watched(out, args).await,
        false => once(out, args, status.exit_code).await,
    }
}

async fn once(out: &Printer, args: &Args, exit_code: bool) -> Result<ExitCode, Error> {
    let client = Client::connect(&args.socket, args.timeout).await?;
    let answers = Answers::ask(&client).await?;
    if out.json {
        let value = document(&answers.node, answers.causes.clone())?;
        print_bytes(format!("{value:#}\n").as_bytes())?;
    } else {
        print_bytes(screen(&answers.view(), &out.screen).as_bytes())?;
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
    match (out.json, std::io::stdout().is_terminal()) {
        (true, _) => live::json_lines(args, newest).await,
        (false, true) => live::run(out, args).await,
        (false, false) => watch::run(out, args, &WatchArgs::default()).await,
    }
}
