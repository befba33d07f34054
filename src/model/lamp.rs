//! The locate lamps that people have lit to find a drive in its enclosure. Pure.
//!
//! Each is remembered before it is lit, so that a daemon that is killed turns it off later.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use diskvitals_finding::ids::DriveId;
use diskvitals_text::duration::elapsed;
use diskvitals_text::naming::slot_name;

/// A lamp that nobody has turned off by then misleads the next person.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A lamp that shows a person where a drive is. Never the fault lamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LampPlace {
    /// A slot of an enclosure with SES (drivers/misc/enclosure.c): the enclosure's logical id, or its
    /// kernel name if it has none, and the name of the component.
    Ses { enclosure: String, component: String },
    /// NPEM of a PCI function (drivers/pci/npem.c): its address.
    Npem { pci: String },
    /// A hot-plug slot below VMD: its number.
    Vmd { slot: String },
    /// A port of an AHCI controller: the directory of its SCSI host in sysfs.
    Ahci { host: String },
}

impl fmt::Display for LampPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LampPlace::Ses { enclosure, component } => {
                write!(f, "slot {} of enclosure {enclosure}", slot_name(component))
            }
            LampPlace::Npem { pci } => write!(f, "PCI device {pci}"),
            LampPlace::Vmd { slot } => write!(f, "PCI slot {slot}"),
            LampPlace::Ahci { host } => {
                write!(f, "AHCI port {}", host.rsplit('/').next().unwrap_or(host))
            }
        }
    }
}

/// A lamp that was lit, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LampOrder {
    /// `uid 0 (root)`.
    pub by: String,
    pub since: Timestamp,
    pub place: LampPlace,
}

pub type LampOrders = BTreeMap<DriveId, Arc<LampOrder>>;

impl LampOrder {
    /// When it is turned off.
    pub fn until(&self) -> Timestamp {
        self.since.checked_add(LONGEST).unwrap_or(Timestamp::MAX)
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        elapsed(self.since, now) >= LONGEST
    }
}
