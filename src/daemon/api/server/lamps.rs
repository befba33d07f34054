//! Locate lamps: lights the one of a drive, and turns it off at a command or after a day.
//!
//! In: a drive as the newest scan describes it. A lamp is remembered, on disk, before it is lit: a daemon
//! that is killed in between turns it off later. Workers switch it, because an enclosure may hang.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tonic::Status;

use crate::api::status::{failed_precondition, unavailable};
use crate::state::handle::Handle;
use diskvitals_convert as convert;
use diskvitals_finding::ids::DriveId;
use diskvitals_host::clock;
use diskvitals_model::drive::DriveFacts;
use diskvitals_model::lamp::{LampOrder, LampPlace};
use diskvitals_model::snapshot::{Drive, Presence};
use diskvitals_text::duration::elapsed;
use diskvitals_wire as wire;

/// Between attempts to turn off a lamp that does not follow, and between looks at the clock: lamps are
/// turned off at most so much later.
const RETRY_INTERVAL: Duration = Duration::from_secs(600);

/// Finds and switches lamps, each in a worker process with its time-out. Errors are for people.
#[tonic::async_trait]
pub trait LampBackend: Send + Sync + 'static {
    /// None: the kernel knows of no lamp.
    async fn find(&self, drive: &DriveFacts) -> Result<Option<LampPlace>, String>;

    async fn switch(&self, place: &LampPlace, is_on: bool) -> Result<(), String>;
}

#[derive(Clone)]
pub struct Lamps {
    handle: Handle,
    backend: Arc<dyn LampBackend>,
}

impl Lamps {
    pub fn new(handle: Handle, backend: Arc<dyn LampBackend>) -> Lamps {
        Lamps { handle, backend }
    }

    pub(super) async fn light(&self, drive: &Drive, by: String) -> Result<wire::Lamp, Status> {
        let place = self.find(drive).await?;
        // At another place now: that lamp would stay lit.
        if let Some(before) = drive.lamp.as_deref().filter(|before| before.place != place) {
            self.switch(&before.place, false).await?;
        }
        let order = self.handle.remember_lamp(drive.facts.id.clone(), by, place).await?;
        // It stays remembered if it does not follow: it may have been lit.
        self.switch(&order.place, true).await?;
        tracing::info!(drive = %drive.facts.id, place = %order.place, "a locate lamp is lit");
        Ok(convert::lamp(&order))
    }

    /// The lamp that was lit, wherever the drive is now; without one, that of the drive.
    pub(super) async fn turn_off(&self, drive: &Drive) -> Result<wire::Lamp, Status> {
        let Some(order) = &drive.lamp else {
            let place = self.find(drive).await?;
            self.switch(&place, false).await?;
            return Ok(wire::Lamp { place: place.to_string(), ..wire::Lamp::default() });
        };
        self.switch(&order.place, false).await?;
        self.handle.forget_lamp(drive.facts.id.clone()).await?;
        tracing::info!(drive = %drive.facts.id, place = %order.place, "a locate lamp is off");
        Ok(convert::lamp(order))
    }

    async fn find(&self, drive: &Drive) -> Result<LampPlace, Status> {
        let facts = &drive.facts;
        if let Presence::Missing { .. } = drive.presence {
            return Err(failed_precondition(format!(
                "the kernel no longer lists the drive: {}",
                whereabouts(facts)
            )));
        }
        let location = &facts.location;
        if let Some(driver) = &location.array_driver {
            return Err(failed_precondition(format!(
                "it is an array of a RAID controller ({driver}), not one drive: locate its drives with the vendor's tool"
            )));
        }
        if let Some(controller) = &location.raid_controller {
            return Err(failed_precondition(format!(
                "the lamp belongs to {controller}: {}; {}",
                vendor_command(controller),
                whereabouts(facts)
            )));
        }
        let found = self.backend.find(facts).await.map_err(unavailable)?;
        found.ok_or_else(|| {
            let device = facts.devices.first().map_or(facts.name.as_str(), |it| it.name.as_str());
            failed_precondition(format!(
                "the kernel knows of no lamp for this drive; ledmon may, if it is installed: `ledctl -x locate=/dev/{device}`. Otherwise {}",
                whereabouts(facts)
            ))
        })
    }

    async fn switch(&self, place: &LampPlace, is_on: bool) -> Result<(), Status> {
        self.backend.switch(place, is_on).await.map_err(unavailable)
    }

    /// Turns off what has been on for a day.
    pub(crate) async fn turn_off_old(self) -> Infallible {
        let mut snapshots = self.handle.snapshots();
        loop {
            let now = clock::now();
            let lamps = snapshots.borrow_and_update().lamps.clone();
            for (drive, order) in lamps.iter().filter(|(_, order)| order.is_over(now)) {
                self.turn_off_one(drive, order).await;
            }
            let next = lamps.values().map(|it| until(it, now)).min();
            match next {
                // No lamp is lit: nothing wakes this task.
                None => drop(snapshots.wait_for(|it| !it.lamps.is_empty()).await),
                Some(next) => {
                    tokio::time::sleep(next.clamp(Duration::from_secs(1), RETRY_INTERVAL)).await;
                }
            }
        }
    }

    async fn turn_off_one(&self, drive: &DriveId, order: &LampOrder) {
        match self.backend.switch(&order.place, false).await {
            Ok(()) => {
                tracing::info!(%drive, place = %order.place, "a locate lamp is turned off after a day");
                // An error: the daemon ends, and the next one turns it off.
                let _ = self.handle.forget_lamp(drive.clone()).await;
            }
            Err(error) => {
                tracing::warn!(%drive, place = %order.place, error, "a locate lamp cannot be turned off");
            }
        }
    }
}

/// From now on; a lamp that should be off is tried again after the longest interval.
fn until(order: &LampOrder, now: Timestamp) -> Duration {
    match order.is_over(now) {
        true => RETRY_INTERVAL,
        false => elapsed(now, order.until()),
    }
}

/// How a person finds it without a lamp.
fn whereabouts(facts: &DriveFacts) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let words = [
        ("serial", text(&facts.serial)),
        ("model", text(&facts.model)),
        ("enclosure", text(&facts.location.enclosure)),
        ("slot", text(&facts.location.slot)),
        ("port", text(&facts.location.path)),
    ];
    let words = words.iter().filter(|(_, value)| !value.is_empty());
    let words: Vec<String> = words.map(|(name, value)| format!("{name} {value}")).collect();
    format!("find it by {}", words.join(", "))
}

/// The one of each vendor is printed, never run: it stalls the controller's I/O.
fn vendor_command(controller: &str) -> &'static str {
    match controller.split(' ').next().unwrap_or_default() {
        "megaraid" | "sssraid" => {
            "`storcli64 /cX/eY/sZ start locate` (PERC: perccli64), with the slot that `storcli64 /cX/eALL/sALL show` lists"
        }
        "cciss" => "`ssacli controller slot=X physicaldrive Y modify led=on`",
        "aacraid" => "`arcconf identify X device Y Z`",
        _ => "use the vendor's tool",
    }
}

#[cfg(test)]
mod tests;
