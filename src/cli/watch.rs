//! `watch`: one line for each change, over restarts of the daemon.
//!
//! In: the feed. Out: lines, or events as JSON.

pub mod journal;

use std::process::ExitCode;

use crate::args::Args;
use crate::args::status::WatchArgs;
use crate::error::Error;
use crate::feed::{Feed, Update};
use crate::findings::filter::Resolved;
use crate::findings::known_reason;
use crate::printer::{Printer, print_json, print_text};
use crate::watch::journal::Journal;
use crate::{complain, json, render};
use diskvitals_host::clock::wall_now;
use diskvitals_terminal::screen::Screen;
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;
use diskvitals_wire::watch_event::Change;

pub async fn run(out: &Printer, args: &Args, watch: &WatchArgs) -> Result<ExitCode, Error> {
    let mut feed = Feed::start(&args.socket, args.timeout).await?;
    let mut journal = Journal::new(watch.changes);
    let mut is_lost = false;
    let mut is_first = true;
    loop {
        let Some(update) = feed.next_while_read().await else {
            return Ok(ExitCode::SUCCESS);
        };
        match update {
            Update::Connected(client) => {
                let filter = resolve(&client, watch).await;
                match filter {
                    Ok(filter) => journal.set_filter(filter),
                    // A daemon that has just started may not know the name yet.
                    Err(_) if !is_first => {}
                    Err(error) => return Err(error),
                }
                // An error: this connection is about to be lost too.
                if let Ok(causes) = client.causes().await {
                    journal.set_causes(causes.is_some());
                }
                if std::mem::take(&mut is_lost) {
                    announce(out, "connected to diskvitalsd again")?;
                }
                is_first = false;
            }
            Update::Event(event) => show(out, &mut journal, &event)?,
            Update::Lost(why) if !is_lost => {
                is_lost = true;
                announce(out, &format!("no answer from diskvitalsd, trying again: {why}"))?;
            }
            Update::Lost(_) => {}
        }
    }
}

async fn resolve(client: &Client, watch: &WatchArgs) -> Result<Resolved, Error> {
    let filter = &watch.filter;
    if !filter.reason.is_empty() {
        let findings = client.findings(false).await?.findings;
        for wanted in &filter.reason {
            known_reason(wanted, &findings)?;
        }
    }
    Ok(Resolved::ask(client, filter).await?)
}

/// A line about the connection; beside JSON, on standard error.
fn announce(out: &Printer, text: &str) -> Result<(), Error> {
    if out.json {
        complain(text);
        return Ok(());
    }
    let screen = now(out);
    let line =
        format!("{}  {}\n", screen.clock(), diskvitals_terminal::screen::escape_control(text));
    print_text(&line)
}

fn now(out: &Printer) -> Screen {
    Screen { now: wall_now(), ..out.screen.clone() }
}

fn show(out: &Printer, journal: &mut Journal, event: &wire::WatchEvent) -> Result<(), Error> {
    if out.json {
        let is_mark = matches!(event.change(), Change::SnapshotBegin | Change::SnapshotEnd);
        let is_news = journal.apply(event, &out.screen).is_some();
        let is_change = !is_mark && (is_news || !journal.is_in_list());
        // Without --changes, all events: a list must be complete.
        let is_shown = journal.passes(event) && (!journal.only_changes() || is_change);
        return match is_shown {
            true => print_json(&json::compact("WatchEvent", event)?),
            false => Ok(()),
        };
    }
    let screen = now(out);
    match journal.apply(event, &screen) {
        Some(entries) => {
            let lines: String =
                entries.iter().map(|entry| render::watch::line(entry, &screen)).collect();
            print_text(&lines)
        }
        None => Ok(()),
    }
}
