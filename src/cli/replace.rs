//! Follows the replacement of a drive to its end: prints each step when the state of the node has changed.
//!
//! In: the daemon's answers. Out: steps, as text or JSON. It keeps nothing: the same command goes on after a
//! reboot.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::args::Args;
use crate::complain;
use crate::error::Error;
use crate::printer::Printer;
use crate::render;

use diskvitals_text::causes::with_causes;
use diskvitals_wire as wire;
use diskvitals_wire::client::Client;
use diskvitals_wire::replacement_step::Kind;

/// The wrong drive is to be put back at once. The daemon answers from its snapshot.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Between two lines about the progress of what runs.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// `first`: the answer that has been printed. From now on the drive is meant by its id: another one may
/// get its name.
pub(crate) async fn follow(
    out: &Printer,
    args: &Args,
    client: Client,
    first: wire::Removal,
    with: &str,
) -> Result<ExitCode, Error> {
    let drive = first.drive.clone().unwrap_or_default();
    let mut shown = first.step.unwrap_or_default();
    if drive.presence() == wire::Presence::Present && shown.kind() != Kind::Done {
        switch_lamp(&client, &drive.id, true).await;
    }
    let (mut connected, mut shown_at) = (Some(client), Instant::now());
    while shown.kind() != Kind::Done {
        sleep(POLL_INTERVAL).await;
        let answer = match &connected {
            Some(client) => client.removal(&drive.id, with).await,
            None => match Client::connect(&args.socket, args.timeout).await {
                Ok(client) => {
                    let answer = client.removal(&drive.id, with).await;
                    connected = Some(client);
                    answer
                }
                Err(error) => Err(error),
            },
        };
        let step = match answer {
            Ok(answer) => answer.step.unwrap_or_default(),
            Err(error) => {
                // Once: it may restart.
                if connected.take().is_some() {
                    complain(&format!("{}; waiting for the daemon", with_causes(&error)));
                }
                continue;
            }
        };
        let is_progress = step.kind() == Kind::Wait && shown.kind() == Kind::Wait;
        if step != shown && (!is_progress || shown_at.elapsed() >= PROGRESS_INTERVAL) {
            out.show("ReplacementStep", &step, || render::removal::step(&step, &out.screen))?;
            (shown, shown_at) = (step, Instant::now());
        }
    }
    if let Some(client) = &connected
        && client.drive(&drive.id).await.is_ok_and(|it| it.lamp.is_some())
    {
        switch_lamp(client, &drive.id, false).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Without a lamp, or without root, the guide is as good.
async fn switch_lamp(client: &Client, drive: &str, on: bool) {
    match client.set_lamp(drive, on).await {
        Ok(lamp) => complain(&format!(
            "the locate lamp is {}: {}",
            if on { "on, for 24 hours at most" } else { "off" },
            lamp.place
        )),
        Err(error) => {
            complain(&format!("the locate lamp is not switched: {}", with_causes(&error)))
        }
    }
}
