//! Commands of clients: acknowledgements, subscriptions, refreshes, checks. In: a `Command`. Out:
//! its reply; the owner does not wait for a client or a disk.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::state::handle::{Command, CommandError, FreshReadings};
use crate::state::owner::{Owner, log_transition};
use diskvitals_finding::Finding;
use diskvitals_finding::reason::Reason;
use diskvitals_host::clock;
use diskvitals_model::lamp::LampOrder;
use diskvitals_model::ledger::{LedgerError, Transition};
use diskvitals_model::maintenance::{self, MaintenanceOrder};
use diskvitals_model::replacement::next_step;
use diskvitals_model::source_update::SourceRequest;

/// Time that the answer to a person's change waits for the disk.
const WRITE_ACK_TIMEOUT: Duration = Duration::from_secs(5);

impl Owner {
    pub(super) fn handle_command(&mut self, command: Command) {
        match command {
            Command::Acknowledge { finding, by, note, seen, is_repaired, reply } => {
                let (ack, now) = ((by, note), clock::now());
                let result = match is_repaired {
                    true => self.ledger.acknowledge_repair(&finding, ack, seen, now),
                    false => self.ledger.acknowledge(&finding, ack, seen, now),
                };
                if let Ok(transition) = &result {
                    let (subject, reason) =
                        (transition.finding.subject.clone(), transition.finding.reason);
                    if reason == Reason::FilesystemCorrupted {
                        self.facts.acknowledge_corruption(&subject);
                    } else if is_repaired {
                        self.facts.forget_repaired(&subject, reason);
                    }
                }
                self.reply_to_transition(result, reply);
            }
            Command::Unacknowledge { finding, reply } => {
                let result = self.ledger.unacknowledge(&finding);
                self.reply_to_transition(result, reply);
            }
            Command::StartMaintenance { target, by, note, length, reply } => {
                let (since, seconds) = (clock::now(), length.as_secs());
                let order = Arc::new(MaintenanceOrder { by, note, since, seconds });
                let thing = maintenance::name(&self.snapshots.borrow(), &target);
                tracing::info!(thing, seconds, note = order.note, "maintenance begins");
                Arc::make_mut(&mut self.facts.maintenance).insert(target, order.clone());
                self.reply_when_stored(order, reply);
            }
            Command::EndMaintenance { target, reply } => {
                let thing = maintenance::name(&self.snapshots.borrow(), &target);
                match Arc::make_mut(&mut self.facts.maintenance).remove(&target) {
                    Some(order) => {
                        tracing::info!(thing, "maintenance is ended by a command");
                        self.reply_when_stored(order, reply);
                    }
                    None => {
                        // The client may have disconnected.
                        let _ = reply.send(Err(CommandError::NotInMaintenance(thing)));
                    }
                }
            }
            Command::RememberLamp { drive, by, place, reply } => {
                let lamp = Arc::new(LampOrder { by, since: clock::now(), place });
                Arc::make_mut(&mut self.facts.lamps).insert(drive, lamp.clone());
                self.reply_when_stored(lamp, reply);
            }
            Command::ForgetLamp { drive } => {
                Arc::make_mut(&mut self.facts.lamps).remove(&drive);
                self.publish_soon();
            }
            Command::Subscribe { resume, reply } => {
                let subscription = self.change_stream.subscribe(resume, &self.snapshots.borrow());
                // The client may have disconnected.
                let _ = reply.send(subscription);
            }
            Command::Refresh(request) => {
                // Without sources there is no receiver.
                let _ = self.requests.send(request);
            }
            Command::JudgeRemoval { drive, with, reply } => {
                let active = self.ledger.levels();
                // The client may have disconnected.
                let _ = reply.send(next_step(&self.facts, &active, &drive, with.as_ref()));
            }
            Command::ReadIo { reply } => {
                self.io_waiters.add(reply, clock::now());
                // Without sources there is no receiver.
                let _ = self.requests.send(SourceRequest::DiskStats);
            }
            Command::ReadAgain { requests, wanted, patience, reply } => {
                let until = Instant::now() + patience;
                if self.reading_waiters.add(wanted, clock::now(), until, reply) {
                    for request in requests {
                        // Without sources there is no receiver.
                        let _ = self.requests.send(request);
                    }
                }
            }
            Command::SetBypassed { driver, bypassed } => {
                if self.facts.bypassed_drivers.set_bypassed(&driver, bypassed) {
                    match bypassed {
                        true => tracing::warn!(
                            driver,
                            "volumes of a CSI driver do not pass through diskvitals-csi"
                        ),
                        false => tracing::info!(
                            driver,
                            "volumes of a CSI driver pass through diskvitals-csi again"
                        ),
                    }
                    self.publish_soon();
                }
            }
            Command::StartCheck { request: asked, reply } => {
                let rules = self.settings.borrow().clone();
                let (checks, active) = (&rules.policy.checks, self.ledger.levels());
                let begun = self.facts.start_check(asked, checks, &active, clock::now());
                self.publish(Vec::new());
                // The client may have disconnected.
                let _ = reply.send(begun.map_err(CommandError::from));
            }
            Command::CancelCheck { check, reply } => {
                let cancelled =
                    self.facts.cancel_check(&check).ok_or(CommandError::NoSuchCheck(check));
                self.publish(Vec::new());
                // The client may have disconnected.
                let _ = reply.send(cancelled);
            }
        }
    }

    /// Answers the requests whose readings are made, from a snapshot that contains these readings.
    pub(super) fn answer_readings(&mut self) {
        if self.reading_waiters.is_empty() {
            return;
        }
        let settled = self.snapshots.borrow().settled;
        let due = self.reading_waiters.take_due(&self.facts, settled, Instant::now());
        if due.is_empty() {
            return;
        }
        self.publish(Vec::new());
        let snapshot = self.snapshots.borrow().clone();
        for answer in due {
            // The client may have disconnected.
            let _ = answer.reply.send(FreshReadings {
                snapshot: snapshot.clone(),
                inventory: answer.inventory,
                kernel_log: answer.kernel_log,
                missing: answer.missing,
            });
        }
    }

    fn reply_to_transition(
        &mut self,
        result: Result<Transition, LedgerError>,
        reply: oneshot::Sender<Result<Arc<Finding>, CommandError>>,
    ) {
        match result {
            Ok(transition) => {
                log_transition(&transition);
                self.reply_when_stored(transition.finding, reply);
            }
            Err(error) => {
                // The client may have disconnected.
                let _ = reply.send(Err(error.into()));
            }
        }
    }

    /// Publishes at once; a separate task answers when the change is on disk. While history is
    /// known to be in memory only, answers at once.
    fn reply_when_stored<T: Send + Sync + 'static>(
        &mut self,
        changed: Arc<T>,
        reply: oneshot::Sender<Result<Arc<T>, CommandError>>,
    ) {
        if self.store_sync.is_in_memory() {
            self.publish(Vec::new());
            // The client may have disconnected.
            let _ = reply.send(Ok(changed));
            return;
        }
        let (stored, answer) = oneshot::channel();
        self.publish(vec![stored]);
        tokio::spawn(async move {
            let result = match timeout(WRITE_ACK_TIMEOUT, answer).await {
                Ok(Ok(Ok(()))) => Ok(changed),
                Ok(Ok(Err(why))) => {
                    Err(CommandError::NotStored(format!("{why} (it holds in memory)")))
                }
                Ok(Err(_)) => Err(CommandError::NotStored(
                    "the disk does not keep up (it holds in memory)".to_owned(),
                )),
                Err(_) => Err(CommandError::NotStored(format!(
                    "no answer from the disk after {WRITE_ACK_TIMEOUT:?} (it holds in memory)"
                ))),
            };
            // The client may have disconnected.
            let _ = reply.send(result);
        });
    }
}

impl From<LedgerError> for CommandError {
    fn from(error: LedgerError) -> CommandError {
        match error {
            LedgerError::NoSuchFinding(id) => CommandError::NoSuchFinding(id),
            LedgerError::NotAcknowledged(id) => CommandError::NotAcknowledged(id),
            LedgerError::Worsened(id) => CommandError::Worsened(id),
            LedgerError::NotOfErrors(id, reason) => CommandError::NotOfErrors(id, reason),
        }
    }
}
