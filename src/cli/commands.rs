//! The commands: each calls the daemon, then renders the answer. A command prints its output in one
//! piece, except for `watch`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::status::StatusArgs;
use crate::args::{
    Analyze, Args, CheckArgs, Command, LampSwitch, MaintenanceLength, Record, TestKind,
};
use crate::error::Error;
use crate::place::by_name;
use crate::printer::{Printer, print_text};
use crate::self_test::{self, SelfTestProgress, SelfTestTracker};
use crate::{
    bundle, check, complain, complete, doctor, findings, manual, offline, record, render, replace,
    report, status, watch,
};
use diskvitals_analyze as analyze;
use diskvitals_analyze::InputSource;
use diskvitals_analyze::kernel_log_analysis::{LogHealth, Unreadable};
use diskvitals_analyze::smart::Health;
use diskvitals_finding::reason::UnknownReason;
use diskvitals_terminal::output::write_document;
use diskvitals_terminal::screen::Screen;
use diskvitals_text::causes::with_causes;
use diskvitals_text::similar::{did_you_mean, similar};
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};

/// A command that only reads is repeated once if the connection breaks, because the daemon may have
/// just restarted. Nothing is printed before the answers are complete.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match run_command(&args).await {
        Err(Error::Client(ClientError::ConnectionLost { .. })) if only_reads(&args.command) => {
            run_command(&args).await
        }
        ended => ended,
    }
}

fn only_reads(command: &Command) -> bool {
    match command {
        Command::Status(StatusArgs { watch: false, .. })
        | Command::Drives { .. }
        | Command::Drive { .. }
        | Command::Replace { follow: false, .. }
        | Command::Care { .. }
        | Command::Volumes { .. }
        | Command::Volume { .. }
        | Command::Findings(_)
        | Command::Explain { .. }
        | Command::Checks { .. }
        | Command::Maintenance { id: None, .. }
        | Command::Config
        | Command::Reasons { .. }
        | Command::Report(_)
        | Command::Bundle(_)
        | Command::Version
        | Command::Doctor => true,
        Command::SelfTest { .. }
        | Command::Locate { .. }
        | Command::Replace { .. }
        | Command::Cleanup { .. }
        | Command::Status(_)
        | Command::Watch(_)
        | Command::Ack { .. }
        | Command::Unack { .. }
        | Command::Maintenance { .. }
        | Command::FormatAuthorize { .. }
        | Command::Check(_)
        | Command::Refresh { .. }
        | Command::Analyze { .. }
        | Command::Record { .. }
        | Command::Completions { .. }
        | Command::Complete { .. }
        | Command::Man { .. } => false,
    }
}

async fn run_command(args: &Args) -> Result<ExitCode, Error> {
    let out = Printer::new(args);
    let connect =
        || async { Client::connect(&args.socket, args.timeout).await.map_err(Error::Client) };
    match &args.command {
        Command::Status(status) => return status::run(&out, args, status).await,
        Command::Drives { id: None } => {
            let answer = connect().await?.drives().await?;
            out.show("ListDrivesResponse", &answer, || {
                render::drives::table(&answer.drives, &out.screen)
            })?;
        }
        Command::Drives { id: Some(id) }
        | Command::Drive { id, history: false, attributes: false } => {
            let client = connect().await?;
            let answer = by_name(&client, id, async |id| client.drive(id).await).await?;
            out.show("Drive", &answer, || render::drives::one(&answer, &out.screen))?;
        }
        Command::Drive { id, history: true, .. } => {
            let answer = connect().await?.smart_history(id).await?;
            out.show("SmartHistory", &answer, || {
                render::smart::history::text(&answer, &out.screen)
            })?;
        }
        Command::Drive { id, attributes: true, .. } => {
            let answer = connect().await?.drive(id).await?;
            out.show("Drive", &answer, || render::smart::attributes(&answer, &out.screen))?;
        }
        Command::Care { drive } => {
            let client = connect().await?;
            let answer = match drive {
                Some(drive) => {
                    let drive = by_name(&client, drive, async |id| client.drive(id).await).await?;
                    wire::ListDrivesResponse { drives: vec![drive], ..Default::default() }
                }
                None => client.drives().await?,
            };
            out.show("ListDrivesResponse", &answer, || {
                render::care::table(&answer.drives, &out.screen)
            })?;
        }
        Command::Locate { drive, lamp } => {
            let on = *lamp == LampSwitch::On;
            let answer = connect().await?.set_lamp(drive, on).await?;
            out.show("Lamp", &answer, || render::lamps::switched(&answer, on, &out.screen))?;
        }
        Command::Replace { drive, with, follow } => {
            let with = with.as_deref().unwrap_or_default();
            let client = connect().await?;
            let answer = client.removal(drive, with).await?;
            out.show("Removal", &answer, || render::removal::text(&answer, &out.screen))?;
            if *follow {
                return replace::follow(&out, args, client, answer, with).await;
            }
            return Ok(status_of(answer.answer() != wire::removal::Answer::Yes));
        }
        Command::SelfTest { drive, kind, no_wait } => {
            return self_test(&out, &connect().await?, drive, *kind, *no_wait).await;
        }
        Command::Volumes { stale: true, .. } => {
            let answer = connect().await?.attachments("", "", true).await?;
            out.show("ListAttachmentsResponse", &answer, || {
                render::attachments::table(&answer.attachments, &out.screen)
            })?;
        }
        Command::Cleanup { volume, yes, lazy } => {
            return clean_up(&out, &connect().await?, volume, *yes, *lazy).await;
        }
        Command::Volumes { id: None, .. } => {
            let answer = connect().await?.volumes().await?;
            out.show("ListVolumesResponse", &answer, || {
                render::volumes::all(&answer, &out.screen)
            })?;
        }
        Command::Volumes { id: Some(id), .. } | Command::Volume { id } => {
            let client = connect().await?;
            let answer = by_name(&client, id, async |id| client.volume(id).await).await?;
            out.show("Volume", &answer, || render::volumes::one(&answer, &out.screen))?;
        }
        Command::Findings(args) => return findings::list(&out, &connect().await?, args).await,
        Command::Explain { id: words } => {
            let id = &words.join(" ");
            let client = connect().await?;
            let mut answer = by_name(&client, id, async |id| client.explain(id).await).await?;
            // `checks` prints what the checkers printed.
            for run in answer.checks.iter_mut().flat_map(|check| &mut check.runs) {
                run.output.clear();
            }
            out.show("Explanation", &answer, || render::explain::tree(&answer, &out.screen))?;
        }
        Command::Watch(watch) => return watch::run(&out, args, watch).await,
        Command::Ack { finding, note, repaired, yes } => {
            let note = (note.as_str(), *repaired);
            return findings::acknowledge(&out, &connect().await?, finding, note, *yes).await;
        }
        Command::Unack { finding, yes } => {
            return findings::unacknowledge(&out, &connect().await?, finding, *yes).await;
        }
        Command::Maintenance { id: Some(id), length: Some(length), note } => {
            let length = match length {
                MaintenanceLength::End => None,
                MaintenanceLength::For(length) => Some(*length),
            };
            let answer = connect().await?.maintain(id, length, note).await?;
            out.show("Maintenance", &answer, || match length {
                Some(_) => render::maintenance::one(&answer, &out.screen),
                None => render::maintenance::ended(&answer),
            })?;
        }
        Command::Maintenance { .. } => {
            let node = connect().await?.node().await?;
            out.show("Node", &node, || render::maintenance::list(&node.maintenance, &out.screen))?;
        }
        Command::FormatAuthorize { volume: Some(volume), revoke } => {
            let answer = connect().await?.authorize_format(volume, *revoke).await?;
            out.show("FormatAuthorization", &answer, || {
                render::formatting::one(&answer, &out.screen)
            })?;
        }
        Command::FormatAuthorize { volume: None, .. } => {
            let answer = connect().await?.format_authorizations().await?;
            out.show("ListFormatAuthorizationsResponse", &answer, || {
                render::formatting::list(&answer.authorizations, &out.screen)
            })?;
        }
        Command::Check(check) => {
            return self::check(&out, connect, check).await.or_else(|error| match error {
                Error::Output(error) => Err(Error::Output(error)),
                error => {
                    complain(&with_causes(&error));
                    Ok(ExitCode::from(check::EXIT_PREVENTED))
                }
            });
        }
        Command::Checks { what } => check::list(&out, &connect().await?, what.as_deref()).await?,
        Command::Refresh { id } => {
            let client = connect().await?;
            let answer = match id.as_deref() {
                Some(id) => by_name(&client, id, async |id| client.refresh(id).await).await?,
                None => client.refresh("").await?,
            };
            out.show("RefreshResponse", &answer, || {
                format!("refreshing: {}\n", answer.asked.join(", "))
            })?;
        }
        Command::Config => {
            let answer = connect().await?.config().await?;
            out.show("Config", &answer, || render::config::text(&answer))?;
        }
        Command::Reasons { reason } => return reasons(&out, args, reason.as_deref()).await,
        Command::Report(report) => return report::run(&out, args, report).await,
        Command::Bundle(bundle) => return bundle::run(&connect().await?, bundle).await,
        Command::Analyze { what } => return analyze(&out, what),
        Command::Record { what: Record::Io { length } } => record::io(*length).await?,
        Command::Completions { shell } => {
            write_document(&complete::script(*shell)).map_err(Error::Output)?
        }
        Command::Complete { words } => {
            let names = complete::names(words, &args.socket).await;
            print_text(&names)?;
        }
        Command::Man { dir } => {
            manual::write_pages(dir).map_err(|source| Error::Man { dir: dir.clone(), source })?
        }
        Command::Version => version(&out, args).await?,
        Command::Doctor => return doctor::run(&out, args).await,
    }
    Ok(ExitCode::SUCCESS)
}

fn status_of(failed: bool) -> ExitCode {
    ExitCode::from(u8::from(failed))
}

async fn reasons(out: &Printer, args: &Args, wanted: Option<&str>) -> Result<ExitCode, Error> {
    // The daemon's own table is preferred: it may be newer than this program's.
    let answer = match Client::connect(&args.socket, args.timeout).await {
        Ok(client) => client.reasons().await?,
        Err(_) => diskvitals_convert::reasons::all(),
    };
    let Some(wanted) = wanted else {
        out.show("ListReasonsResponse", &answer, || {
            render::reasons::all(&answer.reasons, &out.screen)
        })?;
        return Ok(ExitCode::SUCCESS);
    };
    let Some(reason) =
        answer.reasons.iter().find(|reason| reason.name.eq_ignore_ascii_case(wanted))
    else {
        let names = answer.reasons.iter().map(|reason| reason.name.as_str());
        let hint = did_you_mean(&similar(wanted, names));
        complain(&format!("{}{hint}", UnknownReason(wanted.to_owned())));
        return Ok(ExitCode::from(2));
    };
    out.show("ReasonText", reason, || render::reasons::one(reason, &out.screen))?;
    Ok(ExitCode::SUCCESS)
}

async fn check<F>(
    out: &Printer,
    connect: impl FnOnce() -> F,
    args: &CheckArgs,
) -> Result<ExitCode, Error>
where
    F: Future<Output = Result<Client, Error>>,
{
    match (&args.target, &args.cancel) {
        (Some(target), _) => check::run(out, &connect().await?, args, target).await,
        (None, Some(id)) => {
            let answer = connect().await?.cancel_check(id).await?;
            out.show("Check", &answer, || format!("check {} is being cancelled\n", answer.id))?;
            Ok(ExitCode::SUCCESS)
        }
        // clap requires one of the three.
        (None, None) => {
            check::check_image_file(
                out,
                args.image.as_deref().unwrap_or(Path::new("-")),
                args.config.as_deref(),
            )
            .await
        }
    }
}

async fn clean_up(
    out: &Printer,
    client: &Client,
    volume: &str,
    yes: bool,
    lazy: bool,
) -> Result<ExitCode, Error> {
    let answer = client.clean_up(volume, yes, lazy).await?;
    out.show("ForceCleanupResponse", &answer, || {
        render::attachments::cleanup(&answer, volume, yes, &out.screen)
    })?;
    let all_done = answer.steps.iter().all(|step| step.state() == wire::cleanup_step::State::Done);
    Ok(status_of(yes && !all_done))
}

/// Starts a self-test and follows it to its end; the drive continues it without this program.
async fn self_test(
    out: &Printer,
    client: &Client,
    drive: &str,
    kind: TestKind,
    no_wait: bool,
) -> Result<ExitCode, Error> {
    let before = client.drive(drive).await?;
    let mut test = SelfTestTracker::new(&before, kind);
    let started = client.start_self_test(drive, kind.wire()).await?;
    let mut shown = None;
    loop {
        let now = client.drive(&started.drive_id).await?;
        let progress = test.update(&now, test.started.elapsed());
        if !out.json && shown.as_ref() != Some(&progress) {
            let first = !shown.as_ref().is_some_and(SelfTestProgress::has_started);
            print_text(&render::smart::self_test::line(&progress, first, kind, &now))?;
        }
        let over = progress.is_finished() || no_wait && progress.has_started();
        if over && out.json {
            out.show(
                "SelfTests",
                &now.smart.and_then(|smart| smart.self_tests).unwrap_or_default(),
                String::new,
            )?;
        }
        if over {
            return Ok(status_of(progress.has_failed()));
        }
        shown = Some(progress);
        tokio::select! {
            () = tokio::time::sleep(self_test::POLL_INTERVAL) => {}
            signal = tokio::signal::ctrl_c() => {
                signal.map_err(Error::Signal)?;
                complain(&format!("the drive continues the test; `diskvitals drive {drive}` shows its result"));
                return Ok(ExitCode::from(130));
            }
        }
        if test.take_refresh_due() {
            client.refresh(&started.drive_id).await?;
        }
    }
}

fn analyze(out: &Printer, what: &Analyze) -> Result<ExitCode, Error> {
    match what {
        Analyze::Io { files, peers } => {
            let peers: Vec<Vec<String>> = peers.iter().map(|names| names.0.clone()).collect();
            analyze_each(
                out,
                files,
                None,
                |source| analyze::io(source, &peers),
                render::io::text,
                analyze::io::exit_status,
            )
        }
        Analyze::KernelLog { files } => analyze_each(
            out,
            files,
            None,
            analyze::kernel_log,
            render::kernel_log::text,
            |answer| match answer {
                Err(_) => 1,
                Ok(answer) if answer.health == LogHealth::Unknown => analyze::EXIT_UNKNOWN,
                Ok(_) => 0,
            },
        ),
        Analyze::Smart { files, config } => {
            let policy = offline::policy(config.as_deref())?.smart;
            analyze_each(
                out,
                files,
                Some(Health::Unknown),
                |source| analyze::smart(source, &policy),
                render::smart::file::text,
                analyze::smart::exit_status,
            )
        }
        Analyze::Fsck { filesystem, mode, exit_status, files } => {
            let sources = sources(files);
            let answer = match analyze::fsck(*filesystem, mode.model(), exit_status, &sources) {
                Ok(answer) => answer,
                Err(error) => {
                    complain(&error.to_string());
                    return Ok(ExitCode::from(2));
                }
            };
            out.show_line(&answer, |answer| render::fsck::text(answer, &out.screen))?;
            Ok(ExitCode::from(answer.exit_status()))
        }
    }
}

/// Prints one answer per file, in their order, each as soon as it is available. The exit status: 1
/// if a file could not be read, otherwise the highest of the files.
fn analyze_each<T: serde::Serialize, E: std::fmt::Display>(
    out: &Printer,
    files: &[PathBuf],
    health: Option<Health>,
    read: impl Fn(&InputSource) -> Result<T, E>,
    text: impl Fn(&T, &Screen) -> String,
    exit_status: impl Fn(&Result<T, E>) -> u8,
) -> Result<ExitCode, Error> {
    let mut statuses = Vec::new();
    for source in sources(files) {
        let result = read(&source);
        statuses.push(exit_status(&result));
        match result {
            Ok(answer) => out.show_line(&answer, |answer| text(answer, &out.screen))?,
            Err(error) => {
                let answer = Unreadable { file: source.name(), error: error.to_string(), health };
                out.show_line(&answer, render::kernel_log::unreadable)?;
            }
        }
    }
    let unread = statuses.contains(&1).then_some(1);
    let status = unread.or(statuses.into_iter().max()).unwrap_or(0);
    Ok(ExitCode::from(status))
}

/// `-` or no file selects standard input.
fn sources(files: &[PathBuf]) -> Vec<InputSource> {
    let source = |path: &PathBuf| match path.as_os_str() == "-" {
        true => InputSource::StandardInput,
        false => InputSource::File(path.clone()),
    };
    match files {
        [] => vec![InputSource::StandardInput],
        files => files.iter().map(source).collect(),
    }
}

async fn version(out: &Printer, args: &Args) -> Result<(), Error> {
    let client = env!("CARGO_PKG_VERSION");
    let daemon = match Client::connect(&args.socket, args.timeout).await {
        Ok(client) => client.node().await,
        Err(error) => Err(error),
    };
    let text = if out.json {
        let daemon = daemon.map(
            |node| serde_json::json!({"version": node.version, "apiRevision": node.api_revision}),
        );
        let value = serde_json::json!({"client": {"version": client}, "daemon": daemon.unwrap_or_else(|error| serde_json::json!({"error": error.to_string()}))});
        format!("{value:#}\n")
    } else {
        let daemon =
            daemon.map(|node| format!("diskvitalsd {} (API {})", node.version, node.api_revision));
        format!("diskvitals {client}\n{}\n", daemon.unwrap_or_else(|error| error.to_string()))
    };
    print_text(&text)
}
