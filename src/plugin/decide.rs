//! A person's decisions: approve or reject an action, close a breaker. The only commands of the
//! plugin that change something.
//!
//! In: the object as the API server has it. Out: one patch, bound to what the person was shown. The
//! admission policies of the chart check it again: a name other than the caller's, or other evidence,
//! is refused there too.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{Api, ApiError, Kind};
use crate::args::{Consent, DecisionArgs, Options, Output, ResetArgs};
use crate::gather::{POLICIES, actions_path};
use crate::objects::actions::{ActionRecord, PolicyRecord};
use crate::view::actions::{ActionRow, PolicyRow, action, policy, undecidable};
use crate::view::{Gap, Read};
use crate::{Error, Out, complain, gather, render};
use diskvitals_cluster::storage_action::NOTE_ANNOTATION;
use diskvitals_terminal::prompt;
use diskvitals_text::echo::Shown;
use diskvitals_text::echo::echo;

/// How often a patch is tried again when the action changed in what the person did not decide about.
const MAX_ATTEMPTS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Approve,
    Reject,
}

impl Decision {
    fn verb(self) -> &'static str {
        match self {
            Decision::Approve => "approve",
            Decision::Reject => "reject",
        }
    }

    fn approval(self) -> &'static str {
        match self {
            Decision::Approve => "Approved",
            Decision::Reject => "Rejected",
        }
    }
}

/// An action's namespace and name.
pub(crate) fn place(api: &Api, text: &str) -> (String, String) {
    match text.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => (api.namespace.clone(), text.to_owned()),
    }
}

pub(crate) async fn read_action(api: &Api, text: &str) -> Result<ActionRecord, Error> {
    let (namespace, name) = place(api, text);
    let is_name = |it: &str| !it.is_empty() && !it.contains(['/', '?', '#', '%']);
    let found = match is_name(&namespace) {
        true => {
            let path = actions_path(&namespace);
            api.get::<Value>("reading the action", &path, &name).await
        }
        false => Ok(None),
    };
    let found = found.map_err(|error| gather::no_remediation(&error))?;
    found.map(ActionRecord::from).ok_or_else(|| {
        Error::Target(format!(
            "there is no action `{}` in namespace {} (kubectl diskvitals actions -A --all lists them)",
            echo(&name),
            echo(&namespace)
        ))
    })
}

pub(crate) async fn decide(
    api: &Api,
    options: &Options,
    args: &DecisionArgs,
    decision: Decision,
    out: &mut Out,
) -> Result<(), Error> {
    let now = server_time(api).await?;
    out.screen.now = now;
    let record = read_action(api, &args.action).await?;
    let shown = action(&record, now);
    let name = format!("{}/{}", shown.namespace, shown.name);
    let refuse = |why: String| Error::Target(format!("{name}: {why}"));
    if let Some(why) = undecidable(&shown) {
        return Err(refuse(why));
    }
    let mut gaps = Vec::new();
    if decision == Decision::Approve {
        let policy = read_policy(api, &shown.policy).await;
        match check_policy(&shown.policy, policy) {
            Ok(gap) => gaps.extend(gap),
            Err(why) => return Err(refuse(why)),
        }
    }
    let user = api.user_name().await?;
    let evidence = render::actions::action(&shown, &out.screen);
    let mut text = evidence + &render::gaps(&gaps, &out.screen);
    if decision == Decision::Approve {
        text.push('\n');
        text.push_str(&render::actions::consequence(&shown, &out.screen));
    }
    show_first(out, &text)?;
    let question = format!("{} {name} as {user}?", capitalized(decision.verb()));
    ask(&args.consent, &question, decision.verb()).await?;
    let decided = patch(api, args, decision, record, &shown, &user).await?;
    let row = action(&decided, now);
    announce(options, args.consent.dry_run, &row, out, || {
        let verb = decision.approval().to_lowercase();
        let what = format!("{verb} {name} as {user}");
        match row.valid_until {
            Some(until) => format!(
                "{what}; valid until {}",
                until.to_zoned(out.screen.zone.clone()).strftime("%Y-%m-%d %H:%M:%S")
            ),
            None => what,
        }
    })
}

/// Patches the action that was shown. When the controller has written something else meanwhile, the
/// same decision is tried again; other evidence is another decision.
async fn patch(
    api: &Api,
    args: &DecisionArgs,
    decision: Decision,
    mut record: ActionRecord,
    shown: &ActionRow,
    user: &str,
) -> Result<ActionRecord, Error> {
    let path = actions_path(&shown.namespace);
    let what = format!("{}: to {} it", shown.name, decision.verb());
    for _ in 0..MAX_ATTEMPTS {
        let now = server_time(api).await?;
        let change = change(&record, decision, args.note.as_deref(), shown, user, now);
        let dry_run = args.consent.dry_run;
        let patched = api.patch(&what, &path, &shown.name, &change, dry_run).await;
        match patched {
            Ok(object) => return Ok(ActionRecord::from(object)),
            Err(error) if error.kind == Kind::Conflict => {
                record = read_action(api, &format!("{}/{}", shown.namespace, shown.name)).await?;
                same_decision(&record, shown, now).map_err(Error::Target)?;
            }
            Err(error) => return Err(explained(error, APPROVER)),
        }
    }
    Err(Error::Target(format!(
        "{}/{} changes again and again; nothing was decided: try again",
        shown.namespace, shown.name
    )))
}

fn change(
    record: &ActionRecord,
    decision: Decision,
    note: Option<&str>,
    shown: &ActionRow,
    user: &str,
    now: Timestamp,
) -> Value {
    let mut change = json!({
        "metadata": {"resourceVersion": record.meta.resource_version},
        "spec": {
            "approval": decision.approval(),
            "approvedBy": user,
            "approvedAt": whole_seconds(now),
            "approvedHash": shown.evidence_hash,
        },
    });
    if let Some(note) = note {
        change["metadata"]["annotations"] = json!({NOTE_ANNOTATION: note});
    }
    change
}

/// Whether the action still asks what the person was asked.
fn same_decision(record: &ActionRecord, shown: &ActionRow, now: Timestamp) -> Result<(), String> {
    let row = action(record, now);
    let name = format!("{}/{}", row.namespace, row.name);
    if let Some(why) = undecidable(&row) {
        return Err(format!("{name}: {why}"));
    }
    match row.evidence_hash == shown.evidence_hash {
        true => Ok(()),
        false => Err(format!(
            "{name}: the evidence has changed while you read it; nothing was decided. Read it again: kubectl diskvitals actions {name}"
        )),
    }
}

async fn read_policy(api: &Api, name: &str) -> Read<Option<PolicyRow>> {
    let found = api.get::<Value>("reading the policy", POLICIES, name).await;
    let found = found.map_err(|error| error.why)?;
    Ok(found.map(|object| policy(&PolicyRecord::from(object))))
}

/// Why an approval would approve nothing. A policy that the caller may not read is said, and no
/// reason to refuse: the controller asks the same gates before each step.
fn check_policy(name: &str, policy: Read<Option<PolicyRow>>) -> Result<Option<Gap>, String> {
    let row = match policy {
        Err(why) => {
            let why = format!("{why}; whether it is suspended or its breaker is open is not known");
            return Ok(Some(Gap::new(format!("policy {name}"), why)));
        }
        Ok(None) => {
            return Err(format!(
                "its policy {name} no longer exists: an approval would approve nothing"
            ));
        }
        Ok(Some(row)) => row,
    };
    if row.suspended {
        return Err(format!("its policy {name} is suspended: an approval would approve nothing"));
    }
    match &row.breaker {
        None => Ok(None),
        Some(open) => Err(format!(
            "the breaker is open ({}): an approval would approve nothing. Find the common cause, then kubectl diskvitals breaker reset {name}",
            open.opener
        )),
    }
}

#[derive(Serialize)]
struct ResetList {
    items: Vec<PolicyRow>,
}

pub(crate) async fn reset_breaker(
    api: &Api,
    options: &Options,
    args: &ResetArgs,
    out: &mut Out,
) -> Result<(), Error> {
    let now = server_time(api).await?;
    out.screen.now = now;
    let policies = gather::policies(api).await;
    let policies = policies.map_err(|error| gather::no_remediation(&error))?;
    let open = open_breakers(&policies, args.policy.as_deref()).map_err(Error::Target)?;
    if open.is_empty() {
        let none = ResetList { items: Vec::new() };
        return out.show(&none, || "no breaker is open\n".to_owned());
    }
    let mut text = String::new();
    for (_, row) in &open {
        let breaker = render::actions::breaker(row, &out.screen);
        let line = format!("policy {}: {breaker}", row.name);
        text.push_str(&diskvitals_terminal::layout::wrapped(&line, "", &out.screen));
    }
    text.push_str("\nA reset says that a person has found the common cause. Actions that wait go on with their own gates.\n");
    show_first(out, &text)?;
    let names: Vec<&str> = open.iter().map(|(_, row)| row.name.as_str()).collect();
    let question = format!("Reset the breaker of {}?", names.join(", "));
    ask(&args.consent, &question, "reset the breaker").await?;
    let mut reset = Vec::new();
    for (record, row) in &open {
        let time = reset_time(row, server_time(api).await?);
        let change = json!({
            "metadata": {"resourceVersion": record.meta.resource_version},
            "spec": {"breakerResetAt": whole_seconds(time)},
        });
        let what = format!("policy {}: to reset its breaker", row.name);
        let dry_run = args.consent.dry_run;
        let patched = api.patch(&what, POLICIES, &row.name, &change, dry_run).await;
        let patched = patched.map_err(|error| match error.kind {
            Kind::Conflict => Error::Target(format!(
                "policy {} changed while you read it; its breaker was not reset: try again",
                row.name
            )),
            _ => explained(error, RESETTER),
        })?;
        reset.push(policy(&PolicyRecord::from(patched)));
    }
    let list = ResetList { items: reset };
    announce(options, args.consent.dry_run, &list, out, || {
        format!("reset the breaker of {}; the controller closes it", names.join(", "))
    })
}

/// The policies whose breaker is to be closed.
fn open_breakers<'a>(
    policies: &'a [PolicyRecord],
    name: Option<&str>,
) -> Result<Vec<(&'a PolicyRecord, PolicyRow)>, String> {
    let all = policies.iter().map(|record| (record, policy(record)));
    let Some(name) = name else {
        return Ok(all.filter(|(_, row)| row.breaker.is_some()).collect());
    };
    let mut named = all.filter(|(_, row)| row.name == name);
    match named.next() {
        None => Err(format!("there is no StoragePolicy `{}`", echo(name))),
        Some((_, row)) if row.breaker.is_none() => {
            Err(format!("the breaker of policy {name} is not open"))
        }
        Some(open) => Ok(vec![open]),
    }
}

/// The controller accepts only a reset that is later than the opening, by its own clock.
fn reset_time(row: &PolicyRow, now: Timestamp) -> Timestamp {
    let opened = row.breaker.as_ref().and_then(|it| it.since);
    let after = opened.and_then(|at| at.checked_add(SignedDuration::from_secs(1)).ok());
    after.map_or(now, |after| after.max(now))
}

const APPROVER: &str = "deciding about actions needs the ClusterRole diskvitals-approver in the namespace of the action: kubectl create rolebinding approvers -n NAMESPACE --clusterrole diskvitals-approver --user NAME";
const RESETTER: &str = "resetting a breaker needs the ClusterRole diskvitals-approver in the whole cluster: kubectl create clusterrolebinding approvers --clusterrole diskvitals-approver --user NAME";

fn explained(error: ApiError, right: &str) -> Error {
    match error.kind {
        // RBAC says so in these words; an admission policy has its own.
        Kind::Forbidden if error.why.contains("cannot ") => {
            Error::Target(format!("{}: {}; {right}", error.what, error.why))
        }
        _ => Error::Target(error.to_string()),
    }
}

/// Never this machine's clock: the controller would compare it with its own.
async fn server_time(api: &Api) -> Result<Timestamp, Error> {
    let time = api.server_time().await;
    time.ok_or_else(|| {
        Error::Target("the API server's time cannot be read; nothing was decided".to_owned())
    })
}

/// As Kubernetes writes its times.
fn whole_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What the person decides about. Standard output has the result alone when it is JSON.
fn show_first(out: &Out, text: &str) -> Result<(), Error> {
    match out.output {
        Output::Json => {
            use std::io::Write;
            // The error cannot be reported on an unwritable standard error.
            let _ = writeln!(std::io::stderr(), "{}", Shown::screen(text));
            Ok(())
        }
        Output::Table | Output::Wide => out.text(&format!("{text}\n")),
    }
}

async fn ask(consent: &Consent, question: &str, verb: &str) -> Result<(), Error> {
    if consent.yes || consent.dry_run {
        return Ok(());
    }
    if !prompt::is_possible() {
        return Err(Error::Consent(format!(
            "nothing was changed: there is no terminal to ask on; --yes is needed to {verb} without a question"
        )));
    }
    let question = diskvitals_terminal::screen::escape_control(question);
    match prompt::agrees(&question).await.map_err(Error::Input)? {
        true => Ok(()),
        false => Err(Error::Target("nothing was changed".to_owned())),
    }
}

fn announce<T: Serialize>(
    options: &Options,
    dry_run: bool,
    answer: &T,
    out: &Out,
    text: impl FnOnce() -> String,
) -> Result<(), Error> {
    if dry_run && options.output == Output::Json {
        complain("dry run: the API server would accept it; nothing was changed");
    }
    out.show(answer, || match dry_run {
        true => {
            format!("{} (dry run: the API server would accept it; nothing was changed)\n", text())
        }
        false => format!("{}\n", text()),
    })
}

fn capitalized(verb: &str) -> String {
    let (first, rest) = verb.split_at(1);
    first.to_uppercase() + rest
}

#[cfg(test)]
mod tests;
