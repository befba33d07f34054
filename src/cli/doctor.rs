//! `doctor`: whether each source of the daemon and each program that monitoring rests on works.
//!
//! In: the daemon's node, if it answers; what `tools` finds on this machine. Out: one `Item` for each, and
//! the exit status. It judges no drive and reads none.

mod tools;

use std::process::ExitCode;

use serde::Serialize;

use crate::args::Args;
use crate::error::Error;
use crate::printer::Printer;
use crate::render;
use crate::render::status::gap_consequence;
use diskvitals_finding::source::Source;
use diskvitals_host::root::HostRoot;
use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::client::{Client, ClientError};
use diskvitals_wire::source_state::State as Reported;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    Works,
    /// Only a part works.
    Limited,
    Failed,
    Absent,
    TooOld,
    TimedOut,
    NotUnderstood,
    NoPermission,
    /// There is nothing here that it is for.
    NotNeeded,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Daemon,
    Source,
    Tool,
}

/// The answer about one source or program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub kind: Kind,
    pub name: String,
    pub state: State,
    /// What works, or why it does not.
    pub detail: String,
    /// What to install or to change; empty: nothing.
    pub action: String,
    /// Verdicts or checks of this machine lack it.
    pub is_problem: bool,
}

/// The document of `-o json`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Diagnosis {
    pub items: Vec<Item>,
    /// What the daemon lacks a privilege for.
    pub limitations: Vec<String>,
}

impl Diagnosis {
    fn is_good(&self) -> bool {
        self.limitations.is_empty() && self.items.iter().all(|item| !item.is_problem)
    }
}

pub(crate) async fn run(out: &Printer, args: &Args) -> Result<ExitCode, Error> {
    let node = match Client::connect(&args.socket, args.timeout).await {
        Ok(client) => client.node().await,
        Err(error) => Err(error),
    };
    let sources = node.as_ref().map_or(&[][..], |node| &node.sources);
    let tools = tools::examine(HostRoot::new("/"), sources, out.screen.now).await;
    let diagnosis = diagnosis(&node, tools);
    out.show_line(&diagnosis, |diagnosis| render::doctor::text(diagnosis, &out.screen))?;
    Ok(ExitCode::from(u8::from(!diagnosis.is_good())))
}

fn diagnosis(node: &Result<wire::Node, ClientError>, tools: Vec<Item>) -> Diagnosis {
    let (mut items, mut limitations) = (Vec::new(), Vec::new());
    match node {
        Ok(node) => {
            items.push(daemon(node));
            items.extend(Source::ALL.into_iter().map(|source| of_source(source, node)));
            limitations.clone_from(&node.limitations);
        }
        Err(error) => items.push(Item {
            kind: Kind::Daemon,
            name: "diskvitalsd".to_owned(),
            state: match error {
                ClientError::NoPermission(_) => State::NoPermission,
                ClientError::ConnectTimeout(_) | ClientError::RequestTimeout { .. } => {
                    State::TimedOut
                }
                ClientError::NoDaemon(_) => State::Absent,
                ClientError::Connect { .. }
                | ClientError::ConnectionLost { .. }
                | ClientError::Rejected(_) => State::Failed,
            },
            detail: with_causes(error),
            action: String::new(),
            is_problem: true,
        }),
    }
    items.extend(tools);
    Diagnosis { items, limitations }
}

/// The store is not a source, and the daemon works without it.
fn daemon(node: &wire::Node) -> Item {
    let (state, detail) = match (node.settled, node.store.as_str()) {
        (false, _) => (State::Unknown, "it has just started".to_owned()),
        (true, "ok" | "") => (State::Works, node.version.clone()),
        (true, why) => (State::Limited, format!("history is in memory only: {why}")),
    };
    Item {
        kind: Kind::Daemon,
        name: "diskvitalsd".to_owned(),
        state,
        detail,
        action: String::new(),
        is_problem: state != State::Works,
    }
}

fn of_source(source: Source, node: &wire::Node) -> Item {
    let reported = node.sources.iter().find(|it| it.name == source.name());
    let state = match reported.map(|it| (it.state(), it.is_missed)) {
        Some((Reported::Active, _)) => State::Works,
        Some((Reported::Limited, _)) => State::Limited,
        Some((Reported::Down, _)) => State::Failed,
        Some((Reported::Absent, true)) => State::Absent,
        Some((Reported::Absent, false)) => State::NotNeeded,
        Some((Reported::Unspecified, _)) | None => State::Unknown,
    };
    let detail = match (state, reported) {
        (State::Unknown, _) | (_, None) => "it has not reported yet".to_owned(),
        (State::Failed, Some(it)) => format!("{}: {}", it.detail, gap_consequence(&it.name)),
        (_, Some(it)) => it.detail.clone(),
    };
    Item {
        kind: Kind::Source,
        name: source.name().to_owned(),
        state,
        detail,
        action: String::new(),
        // A checker of a filesystem that is not here is not missed: the rows of the programs know.
        is_problem: match state {
            State::Works | State::NotNeeded => false,
            State::Limited => source != Source::Checks,
            _ => true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(states: &[(&str, Reported, bool)]) -> wire::Node {
        let of = |&(name, state, is_missed): &(&str, Reported, bool)| wire::SourceState {
            name: name.to_owned(),
            state: state.into(),
            detail: format!("detail of {name}"),
            since: None,
            is_missed,
        };
        wire::Node {
            version: "1.2.3".into(),
            settled: true,
            store: "ok".into(),
            sources: states.iter().map(of).collect(),
            ..wire::Node::default()
        }
    }

    fn all_active() -> wire::Node {
        node(&Source::ALL.map(|source| (source.name(), Reported::Active, false)))
    }

    fn item<'a>(diagnosis: &'a Diagnosis, name: &str) -> &'a Item {
        diagnosis.items.iter().find(|item| item.name == name).unwrap()
    }

    #[test]
    fn it_is_good_only_when_every_source_works_or_is_not_needed() {
        let good = diagnosis(&Ok(all_active()), Vec::new());
        assert!(good.is_good());
        assert_eq!(good.items.len(), 1 + Source::ALL.len());

        let mut other = all_active();
        other.sources[2] = node(&[("kubelet", Reported::Absent, false)]).sources.remove(0);
        let without_kubelet = diagnosis(&Ok(other), Vec::new());
        assert!(without_kubelet.is_good());
        assert_eq!(item(&without_kubelet, "kubelet").state, State::NotNeeded);

        let mut limited = all_active();
        limited.limitations = vec!["not root".into()];
        assert!(!diagnosis(&Ok(limited), Vec::new()).is_good());
    }

    #[test]
    fn what_has_not_reported_is_unknown_and_a_problem() {
        let nothing = diagnosis(&Ok(node(&[])), Vec::new());
        assert!(!nothing.is_good());
        let smart = item(&nothing, "smart");
        assert_eq!((smart.state, smart.is_problem), (State::Unknown, true));
    }

    #[test]
    fn a_source_that_fails_says_what_is_not_known() {
        let mut failing = all_active();
        failing.sources.retain(|it| it.name != "smart");
        failing.sources.extend(node(&[("smart", Reported::Down, true)]).sources);
        let failing = diagnosis(&Ok(failing), Vec::new());
        let smart = item(&failing, "smart");
        assert_eq!(smart.state, State::Failed);
        assert_eq!(
            smart.detail,
            "detail of smart: whether drives with SMART are failing is not known"
        );
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_a_problem_with_its_state() {
        for (error, state) in [
            (ClientError::NoDaemon("/s".into()), State::Absent),
            (ClientError::NoPermission("/s".into()), State::NoPermission),
            (ClientError::ConnectTimeout("/s".into()), State::TimedOut),
        ] {
            let without = diagnosis(&Err(error), Vec::new());
            assert_eq!(item(&without, "diskvitalsd").state, state);
            assert!(!without.is_good());
        }
    }

    #[test]
    fn history_in_memory_and_a_start_are_not_good() {
        let stores = [("read-only", true, State::Limited), ("ok", false, State::Unknown)];
        for (store, settled, state) in stores {
            let node = wire::Node { store: store.into(), settled, ..all_active() };
            let it = diagnosis(&Ok(node), Vec::new());
            assert_eq!(item(&it, "diskvitalsd").state, state);
            assert!(!it.is_good());
        }
    }
}
