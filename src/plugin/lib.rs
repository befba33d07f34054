//! `kubectl-diskvitals`, the kubectl plugin: the storage health of a cluster for people.
//!
//! In: the API server's objects (NodeStorage, nodes, pods, claims, volumes), by `api`, the only user
//! of kube. `gather` reads what a command needs, `view` joins it (pure), `render` shows it. Out:
//! tables, JSON, exit codes. It needs no daemon and no controller, and to show things no permission
//! beyond reading. `decide` writes a person's decisions; `exec` hands over to `kubectl exec`.

#![warn(unreachable_pub)]

mod api;
mod args;
mod complete;
mod decide;
mod exec;
mod explain;
mod gather;
mod objects;
mod render;
mod stale_mounts;
mod target;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use serde::Serialize;

use crate::api::{Api, ApiError, ConnectError};
use crate::args::{ActionsArgs, BreakerCommand, Command, DrivesArgs, Options, Output, PLUGIN};
use crate::decide::{Decision, decide};
use crate::objects::PodRecord;
use crate::render::overview::{Overview, SilentRow};
use crate::view::actions::{PolicyRow, Remediation};
use crate::view::claims::{Named, claim_gaps, claims, stale, stale_gaps};
use crate::view::drives::{DriveRow, drives, models};
use crate::view::nodes::{NodeView, Report, nodes};
use crate::view::retained::retained;
use crate::view::unclean::UncleanRow;
use crate::view::{Base, Gap, Read, unclean, unreachable};
use diskvitals_terminal::layout::counted;
use diskvitals_terminal::output::{stdout_screen, write_document, write_stdout};
use diskvitals_terminal::screen::{Screen, escape_control};
use diskvitals_terminal::verdict::Verdict;
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::Shown;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("starting the event loop")]
    Runtime(#[source] io::Error),
    #[error("writing the output")]
    Output(#[source] io::Error),
    #[error("making JSON of the answer")]
    Json(#[source] serde_json::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{what}: {why}")]
    Api { what: String, why: String },
    #[error("{0}")]
    Target(String),
    /// The command needs another argument, `--yes`.
    #[error("{0}")]
    Consent(String),
    #[error("reading the answer")]
    Input(#[source] io::Error),
    #[error("starting {program}")]
    Kubectl {
        program: String,
        #[source]
        source: io::Error,
    },
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Error {
        Error::Api { why: error.why, what: error.what }
    }
}

/// Runs the command of the process's arguments.
pub fn main() -> ExitCode {
    let monitoring = std::env::args_os().any(|argument| argument == "--exit-code");
    let unknown = Verdict::Unknown.exit_code();
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // The error cannot be reported on an unwritable terminal.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ if monitoring => ExitCode::from(unknown),
                _ => ExitCode::from(2),
            };
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime);
    match runtime.and_then(|runtime| runtime.block_on(run(&options))) {
        Ok(code) => code,
        // The reader of the pipe has closed it (`| head`): this is not a failure.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::from(match error {
                _ if monitoring => unknown,
                Error::Consent(_) => 2,
                _ => 1,
            })
        }
    }
}

fn complain(text: &str) {
    // The error cannot be reported on an unwritable standard error.
    let _ = writeln!(io::stderr(), "kubectl diskvitals: {}", escape_control(text));
}

struct Out {
    screen: Screen,
    output: Output,
}

impl Out {
    fn is_wide(&self) -> bool {
        self.output == Output::Wide
    }

    fn text(&self, text: &str) -> Result<(), Error> {
        write_stdout(&Shown::screen(text)).map_err(Error::Output)
    }

    fn show<T: Serialize>(&self, answer: &T, text: impl FnOnce() -> String) -> Result<(), Error> {
        match self.output {
            Output::Json => {
                let json = serde_json::to_string_pretty(answer).map_err(Error::Json)?;
                write_stdout(&Shown::json(&format!("{json}\n"))).map_err(Error::Output)
            }
            Output::Table | Output::Wide => self.text(&text()),
        }
    }

    /// A list, with what is missing in it.
    fn list<T: Serialize>(
        &self,
        items: &[T],
        gaps: &[Gap],
        none: &str,
        table: impl FnOnce(&[T]) -> String,
    ) -> Result<(), Error> {
        self.list_with(items, None, gaps, none, table)
    }

    /// The same, with the policies that concern the items.
    fn list_with<T: Serialize>(
        &self,
        items: &[T],
        policies: Option<&[PolicyRow]>,
        gaps: &[Gap],
        none: &str,
        table: impl FnOnce(&[T]) -> String,
    ) -> Result<(), Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct List<'a, T> {
            items: &'a [T],
            #[serde(skip_serializing_if = "Option::is_none")]
            policies: Option<&'a [PolicyRow]>,
            not_seen: &'a [Gap],
        }
        let list = List { items, policies, not_seen: gaps };
        self.show(&list, || {
            let mut text = match (items.is_empty(), gaps.is_empty()) {
                (true, true) => format!("{none}\n"),
                (true, false) => format!("{none} that can be seen\n"),
                (false, _) => table(items),
            };
            let policies = policies.unwrap_or_default();
            if !policies.is_empty() {
                text.push('\n');
                text.push_str(&render::actions::policies(policies, &self.screen));
            }
            text + &render::gaps(gaps, &self.screen)
        })
    }
}

async fn run(options: &Options) -> Result<ExitCode, Error> {
    if options.man {
        let page = PLUGIN.man(Options::command()).map_err(Error::Output)?;
        write_document(&page).map_err(Error::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &options.command {
        Some(Command::Completion { shell }) => {
            write_document(&complete::script(*shell)).map_err(Error::Output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Complete { words }) => {
            let text = complete::answer(words).await;
            write_stdout(&Shown::screen(&text)).map_err(Error::Output)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let api = Api::connect(&options.connection).await?;
    let mut out = Out { screen: stdout_screen(options.no_color), output: options.output };
    match &options.command {
        None => return overview(&api, options, &mut out).await,
        Some(Command::Drives(args)) => list_drives(&api, options, args, &mut out).await?,
        Some(Command::Claims) => list_claims(&api, options, &mut out).await?,
        Some(Command::Stale { node }) => {
            stale_mounts::list(&api, options, node.as_deref(), &mut out).await?;
        }
        Some(Command::Models) => {
            let base = read_base(&api, options, None, &mut out).await?;
            let nodes = nodes(&base);
            let mut gaps = view::drives::gaps(&nodes);
            gaps.extend(gaps_of(&base, &nodes));
            let rows = models(&nodes);
            out.list(&rows, &gaps, "no drives", |rows| {
                render::models(rows, out.is_wide(), &out.screen)
            })?;
        }
        Some(Command::Retained) => list_retained(&api, options, &mut out).await?,
        Some(Command::Actions(args)) => list_actions(&api, options, args, &mut out).await?,
        Some(Command::Approve(args)) => {
            decide(&api, options, args, Decision::Approve, &mut out).await?;
        }
        Some(Command::Reject(args)) => {
            decide(&api, options, args, Decision::Reject, &mut out).await?;
        }
        Some(Command::Breaker { command: BreakerCommand::Reset(args) }) => {
            decide::reset_breaker(&api, options, args, &mut out).await?
        }
        Some(Command::Attachments(args)) => attachments(&api, options, args, &mut out).await?,
        Some(Command::Explain(args)) => return explain::run(&api, options, args).await,
        Some(Command::Config(args)) => {
            let namespace = args.daemon_namespace.as_deref();
            return exec::run(&api, options, &args.node, namespace, &["config"]).await;
        }
        // Answered above, without a cluster.
        Some(Command::Completion { .. } | Command::Complete { .. }) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads what every command needs, and takes the API server's time. A node that was named and is not
/// there is an error.
async fn read_base(
    api: &Api,
    options: &Options,
    node: Option<&str>,
    out: &mut Out,
) -> Result<Base, Error> {
    let selector = options.connection.selector.as_deref();
    let (base, storages) = gather::base(api, selector, node).await;
    storages?;
    out.screen.now = base.now;
    if let Some(node) = node {
        let exists = base.nodes.as_ref().map_or(true, |nodes| nodes.contains_key(node));
        if !exists && base.storages.is_empty() {
            let node = diskvitals_text::echo::echo(node);
            return Err(Error::Target(format!("there is no node `{node}`")));
        }
    }
    Ok(base)
}

/// Lists that were not read, and nodes that do not report.
fn gaps_of(base: &Base, nodes: &[NodeView<'_>]) -> Vec<Gap> {
    let silent: Vec<_> = nodes
        .iter()
        .filter(|node| node.report.mark() == "does not report")
        .map(|node| (node.name, &node.report))
        .collect();
    render::silent_gap(&silent).into_iter().chain(base.gaps()).collect()
}

async fn overview(api: &Api, options: &Options, out: &mut Out) -> Result<ExitCode, Error> {
    let base = read_base(api, options, None, out).await?;
    let nodes = nodes(&base);
    let (named, remediation, ending) = tokio::join!(
        gather::named(api, &nodes, None),
        gather::remediation(api, None, base.now),
        gather::terminating(api, &nodes)
    );
    let view = summarize(&api.context, &api.server, &base, &nodes, &named, &remediation, &ending);
    out.show(&view, || render::overview::screen(&view, out.is_wide(), &out.screen))?;
    Ok(match options.exit_code {
        true => ExitCode::from(view.verdict().exit_code()),
        false => ExitCode::SUCCESS,
    })
}

fn summarize(
    context: &str,
    server: &str,
    base: &Base,
    nodes: &[NodeView<'_>],
    named: &Named,
    remediation: &Remediation,
    ending: &Read<Vec<PodRecord>>,
) -> Overview {
    let of_nodes = |report: &Report| report.is_of_a_node();
    let mut other_drives = drives(nodes, false);
    other_drives.retain(|row| of_nodes(&row.report));
    let (drives_to_replace, other_drives): (Vec<_>, Vec<_>) =
        other_drives.into_iter().partition(DriveRow::is_to_replace);
    let mut rows = claims(base, nodes, named);
    remediation.mark(&mut rows);
    let rows = rows.into_iter().filter(|row| of_nodes(&row.report));
    let (claims, filesystems) = rows.partition(|row| row.is_of_kubernetes);
    let silent =
        nodes.iter().filter(|node| !matches!(node.report, Report::Current | Report::NodeDeleted));
    let mut gaps = base.gaps();
    gaps.extend(named_gaps(named));
    gaps.extend(view::drives::gaps(nodes));
    gaps.extend(claim_gaps(nodes));
    gaps.extend(stale_gaps(nodes));
    gaps.extend(unclean::gaps(nodes));
    gaps.extend(unreachable::gaps(nodes, ending));
    gaps.extend(remediation.gaps());
    let mut stale = stale(nodes, named);
    stale.retain(|row| of_nodes(&row.report));
    let mut unclean = unclean::unclean(nodes, named);
    // The quarantine is of the present node, whoever reported last.
    let is_present = |row: &UncleanRow| row.is_in_quarantine && row.report != Report::NodeDeleted;
    unclean.retain(|row| of_nodes(&row.report) || is_present(row));
    let mut cut_off = unreachable::unreachable(nodes);
    cut_off.retain(|row| of_nodes(&row.report));
    let existing = nodes.iter().filter(|node| of_nodes(&node.report));
    let counts = existing
        .filter_map(|node| node.status)
        .map(|status| u64::from(status.counts.stale).max(status.stale.len() as u64));
    Overview {
        context: context.to_owned(),
        server: server.to_owned(),
        nodes: Overview::count(nodes),
        drives_to_replace,
        other_drives: other_drives.len(),
        claims,
        filesystems,
        silent: silent
            .map(|node| SilentRow { node: node.name.to_owned(), report: node.report.clone() })
            .collect(),
        former_reports: nodes.iter().filter(|node| !of_nodes(&node.report)).count(),
        unclean,
        stale,
        stale_count: counts.sum(),
        unreachable: cut_off,
        terminating: unreachable::terminating(ending.as_deref().unwrap_or_default(), base.now),
        actions: remediation.open().cloned().collect(),
        open_breakers: remediation.open_breakers(),
        is_remediation_unknown: !remediation.gaps().is_empty(),
        are_nodes_unknown: base.nodes.is_err(),
        gaps,
    }
}

/// What could not be read of the things that the nodes' volumes name.
fn named_gaps(named: &Named) -> Option<Gap> {
    if let Err(why) = &named.volumes {
        return Some(Gap::new("persistentvolumes", why.clone()));
    }
    let pods = named.pods.values().filter_map(|it| it.as_ref().err());
    let claims = named.claims.values().filter_map(|it| it.as_ref().err());
    let why = pods.chain(claims).next()?;
    Some(Gap::new("pods and claims of some namespaces", why.clone()))
}

async fn list_drives(
    api: &Api,
    options: &Options,
    args: &DrivesArgs,
    out: &mut Out,
) -> Result<(), Error> {
    // The API server could select nodes by health, and would leave out those that are silent: the
    // last word of one may be a bad drive, and one that never reported is not known.
    let base = read_base(api, options, args.node.as_deref(), out).await?;
    let nodes = nodes(&base);
    let model = args.model.as_deref().map(str::to_lowercase);
    let is_wanted = |row: &DriveRow| {
        let model = model.as_deref();
        model.is_none_or(|model| row.model.to_lowercase().contains(model))
            && args.health.is_none_or(|health| row.health == health.health() && row.is_counted())
    };
    let mut rows = drives(&nodes, args.all);
    rows.retain(is_wanted);
    let mut gaps = view::drives::gaps(&nodes);
    gaps.extend(gaps_of(&base, &nodes));
    // Of good drives the id alone is known: it is in the wide table.
    let wide = out.is_wide() || args.all;
    let none = match args.health.is_some() || args.model.is_some() || args.all {
        true => "no such drives",
        false => "all drives are good",
    };
    out.list(&rows, &gaps, none, |rows| render::drives(rows, wide, &out.screen))
}

async fn list_claims(api: &Api, options: &Options, out: &mut Out) -> Result<(), Error> {
    let base = read_base(api, options, None, out).await?;
    let nodes = nodes(&base);
    let namespace = namespace(api, options);
    let (named, remediation) = tokio::join!(
        gather::named(api, &nodes, namespace),
        gather::remediation(api, namespace, base.now)
    );
    let mut rows = claims(&base, &nodes, &named);
    remediation.mark(&mut rows);
    // A volume whose claim is not known may be anybody's.
    rows.retain(|row| namespace.is_none_or(|it| row.namespace == it || row.is_unassigned()));
    let mut gaps = claim_gaps(&nodes);
    gaps.extend(gaps_of(&base, &nodes));
    gaps.extend(named_gaps(&named));
    gaps.extend(remediation.gaps());
    let none = match namespace {
        Some(namespace) => format!("no affected claims in {namespace}"),
        None => "no affected claims".to_owned(),
    };
    let policies = remediation.policies.as_deref().ok();
    out.list_with(&rows, policies, &gaps, &none, |rows| {
        render::claims(rows, out.is_wide(), &out.screen)
    })
}

/// The namespace of a command that lists; None: all.
fn namespace<'a>(api: &'a Api, options: &Options) -> Option<&'a str> {
    match options.connection.all_namespaces {
        true => None,
        false => Some(api.namespace.as_str()),
    }
}

async fn list_actions(
    api: &Api,
    options: &Options,
    args: &ActionsArgs,
    out: &mut Out,
) -> Result<(), Error> {
    let now = api.server_time().await;
    out.screen.now = now.unwrap_or(out.screen.now);
    if let Some(name) = &args.action {
        let record = decide::read_action(api, name).await?;
        let row = view::actions::action(&record, out.screen.now);
        return out.show(&row, || render::actions::action(&row, &out.screen));
    }
    let namespace = namespace(api, options);
    let records = gather::actions(api, namespace).await;
    let records = records.map_err(|error| gather::no_remediation(&error))?;
    let mut rows = view::actions::actions(&records, out.screen.now);
    let ended = rows.iter().filter(|row| row.state.is_finished()).count();
    rows.retain(|row| args.all || !row.state.is_finished());
    let none = match namespace {
        Some(namespace) => {
            format!("no action waits or is under way in {namespace} (-A: all namespaces)")
        }
        None => "no action waits or is under way".to_owned(),
    };
    out.list(&rows, &[], &none, |rows| {
        let table = render::actions::actions(rows, out.is_wide(), &out.screen);
        table + &render::actions::legend(rows, &out.screen)
    })?;
    match out.output != Output::Json && ended > 0 && !args.all {
        true => out.text(&format!("{} that ended: --all\n", counted(ended as u64, "action"))),
        false => Ok(()),
    }
}

async fn list_retained(api: &Api, options: &Options, out: &mut Out) -> Result<(), Error> {
    let base = read_base(api, options, None, out).await?;
    let nodes = nodes(&base);
    let (volumes, remediation) =
        tokio::join!(gather::released_volumes(api), gather::remediation(api, None, base.now));
    let actions = remediation.actions.as_deref().unwrap_or_default();
    let mut rows = retained(&base, &nodes, &volumes?, actions);
    let namespace = options.connection.namespace.as_deref();
    rows.retain(|row| namespace.is_none_or(|it| row.namespace == it));
    let mut gaps = gaps_of(&base, &nodes);
    gaps.extend(remediation.actions.as_ref().err().map(|why| {
        let why =
            format!("{why}; volumes that an action kept are listed only if a node reports them");
        Gap::new("storageactions", why)
    }));
    out.list(&rows, &gaps, "no retained volumes of failed drives", |rows| {
        render::actions::retained(rows, out.is_wide(), &out.screen)
    })
}

async fn attachments(
    api: &Api,
    options: &Options,
    args: &args::AttachmentsArgs,
    out: &mut Out,
) -> Result<(), Error> {
    let selector = options.connection.selector.as_deref();
    let (base, storages) = gather::base(api, selector, None).await;
    out.screen.now = base.now;
    let nodes = nodes(&base);
    let volumes = target::volumes(api, &args.name).await?;
    let mut views = Vec::new();
    for (volume, claim) in volumes {
        let subject = gather::subject(api, &volume, claim, &storages).await;
        views.push(view::attachments::view(&base, &nodes, &subject, &args.kubelet_root));
    }
    out.show(&views, || {
        let texts = views.iter().map(|it| render::attachments(it, out.is_wide(), &out.screen));
        texts.collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests;
