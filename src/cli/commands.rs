//! One function a command: ask, then render. What is printed goes to standard output in one piece, except for `watch`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use prost_reflect::prost::Message;

use crate::analyze;
use crate::analyze::Source;
use crate::analyze::answer::Unreadable;
use crate::api::client::{Client, ClientError};
use crate::api::wire;
use crate::cli::args::{Analyze, Args, Command, Output};
use crate::cli::screen::Screen;
use crate::cli::{json, offline, render};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Client(ClientError),
    #[error("writing the output")]
    Output(#[source] io::Error),
    #[error("writing the man pages to {}", dir.display())]
    Man {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("making JSON of the answer")]
    Json(#[source] json::JsonError),
    #[error("diskvitalsd at {} has ended the watch: {why}", socket.display())]
    WatchEnded { socket: PathBuf, why: String },
}

pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let out = Out { screen: screen(&args), json: args.output == Output::Json };
    let connect = || async { Client::connect(&args.socket, args.timeout).await.map_err(Error::Client) };
    match &args.command {
        Command::Status { exit_code } => return status(&out, &connect().await?, *exit_code).await,
        Command::Drives { id: None } => {
            let answer = connect().await?.drives().await.map_err(Error::Client)?;
            out.show("ListDrivesResponse", &answer, || render::drives::table(&answer.drives, &out.screen))?;
        }
        Command::Drives { id: Some(id) } | Command::Drive { id } => {
            let answer = connect().await?.drive(id).await.map_err(Error::Client)?;
            out.show("Drive", &answer, || render::drives::one(&answer, &out.screen))?;
        }
        Command::Volumes { id: None } => {
            let answer = connect().await?.volumes().await.map_err(Error::Client)?;
            out.show("ListVolumesResponse", &answer, || render::volumes::table(&answer.volumes, &out.screen))?;
        }
        Command::Volumes { id: Some(id) } | Command::Volume { id } => {
            let answer = connect().await?.volume(id).await.map_err(Error::Client)?;
            out.show("Volume", &answer, || render::volumes::one(&answer, &out.screen))?;
        }
        Command::Findings { all } => {
            let answer = connect().await?.findings(*all).await.map_err(Error::Client)?;
            out.show("ListFindingsResponse", &answer, || render::findings::table(&answer.findings, &out.screen))?;
        }
        Command::Explain { id } => {
            let answer = connect().await?.explain(id).await.map_err(Error::Client)?;
            out.show("Explanation", &answer, || render::explain::tree(&answer, &out.screen))?;
        }
        Command::Watch => watch(&out, &connect().await?, &args).await?,
        Command::Ack { finding, note } => {
            let answer = connect().await?.acknowledge(finding, note).await.map_err(Error::Client)?;
            out.show("Finding", &answer, || render::findings::one(&answer, &out.screen))?;
        }
        Command::Unack { finding } => {
            let answer = connect().await?.unacknowledge(finding).await.map_err(Error::Client)?;
            out.show("Finding", &answer, || render::findings::one(&answer, &out.screen))?;
        }
        Command::Refresh { id } => {
            let answer = connect().await?.refresh(id.as_deref().unwrap_or_default()).await.map_err(Error::Client)?;
            out.show("RefreshResponse", &answer, || format!("asked to look again: {}\n", answer.asked.join(", ")))?;
        }
        Command::Reasons => {
            // The daemon's own table where there is one: it may be newer than this program.
            let answer = match Client::connect(&args.socket, args.timeout).await {
                Ok(client) => client.reasons().await.map_err(Error::Client)?,
                Err(_) => offline::reasons(),
            };
            out.show("ListReasonsResponse", &answer, || render::findings::reasons(&answer.reasons, &out.screen))?;
        }
        Command::Analyze { what: Analyze::KernelLog { files } } => return kernel_log(&out, files),
        Command::Completions { shell } => write(&offline::completions(*shell))?,
        Command::Man { dir } => offline::man(dir).map_err(|source| Error::Man { dir: dir.clone(), source })?,
        Command::Version => version(&out, &args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(out: &Out, client: &Client, exit_code: bool) -> Result<ExitCode, Error> {
    let node = client.node().await.map_err(Error::Client)?;
    let drives = client.drives().await.map_err(Error::Client)?.drives;
    let volumes = client.volumes().await.map_err(Error::Client)?.volumes;
    let findings = client.findings(false).await.map_err(Error::Client)?.findings;
    let picture = render::status::Picture { node: &node, drives: &drives, volumes: &volumes, findings: &findings };
    out.show("Node", &node, || render::status::screen(&picture, &out.screen))?;
    Ok(if exit_code { ExitCode::from(render::status::verdict(&picture).exit_code()) } else { ExitCode::SUCCESS })
}

async fn watch(out: &Out, client: &Client, args: &Args) -> Result<(), Error> {
    let mut events = client.watch(0).await.map_err(Error::Client)?;
    let ended = |why: String| Error::WatchEnded { socket: args.socket.clone(), why };
    loop {
        let event: wire::WatchEvent = match events.message().await {
            Ok(Some(event)) => event,
            Ok(None) => return Err(ended("the stream is over".to_owned())),
            Err(status) => return Err(ended(status.message().to_owned())),
        };
        if out.json {
            let mut line = json::compact("WatchEvent", &event).map_err(Error::Json)?;
            line.push('\n');
            write(line.as_bytes())?;
        } else {
            write(render::watch::line(&event, &out.screen).as_bytes())?;
        }
    }
}

/// One answer a file, in their order, each printed when it is there.
fn kernel_log(out: &Out, files: &[PathBuf]) -> Result<ExitCode, Error> {
    let named = |path: &PathBuf| if path.as_os_str() == "-" { Source::StandardInput } else { Source::File(path.clone()) };
    let sources = if files.is_empty() { vec![Source::StandardInput] } else { files.iter().map(named).collect() };
    let mut code = ExitCode::SUCCESS;
    for source in sources {
        match analyze::kernel_log(&source) {
            Ok(answer) if out.json => line(&answer)?,
            Ok(answer) => write(render::kernel_log::text(&answer, &out.screen).as_bytes())?,
            Err(error) => {
                code = ExitCode::FAILURE;
                let answer = Unreadable { file: source.name(), error: error.to_string() };
                if out.json {
                    line(&answer)?;
                } else {
                    write(render::kernel_log::unreadable(&answer).as_bytes())?;
                }
            }
        }
    }
    Ok(code)
}

/// One value a line.
fn line(value: &impl serde::Serialize) -> Result<(), Error> {
    let mut text = serde_json::to_string(value).map_err(|source| Error::Output(source.into()))?;
    text.push('\n');
    write(text.as_bytes())
}

async fn version(out: &Out, args: &Args) -> Result<(), Error> {
    let client = env!("CARGO_PKG_VERSION");
    let daemon = match Client::connect(&args.socket, args.timeout).await {
        Ok(client) => client.node().await,
        Err(error) => Err(error),
    };
    let text = if out.json {
        let daemon = daemon.map(|node| serde_json::json!({"version": node.version, "apiRevision": node.api_revision}));
        let value = serde_json::json!({"client": {"version": client}, "daemon": daemon.unwrap_or_else(|error| serde_json::json!({"error": error.to_string()}))});
        format!("{value:#}\n")
    } else {
        let daemon = daemon.map(|node| format!("diskvitalsd {} (API {})", node.version, node.api_revision));
        format!("diskvitals {client}\n{}\n", daemon.unwrap_or_else(|error| error.to_string()))
    };
    write(text.as_bytes())
}

struct Out {
    screen: Screen,
    json: bool,
}

impl Out {
    fn show(&self, message: &str, answer: &impl Message, text: impl FnOnce() -> String) -> Result<(), Error> {
        if self.json {
            let mut text = json::pretty(message, answer).map_err(Error::Json)?;
            text.push('\n');
            write(text.as_bytes())
        } else {
            write(text().as_bytes())
        }
    }
}

fn write(bytes: &[u8]) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Error::Output)
}

fn screen(args: &Args) -> Screen {
    let terminal = io::stdout().is_terminal();
    let no_color = args.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Screen {
        width: if terminal { comfy_table::Table::new().width() } else { None },
        color: terminal && !no_color && !dumb,
        now: crate::host::clock::now(),
        zone: TimeZone::system(),
    }
}
