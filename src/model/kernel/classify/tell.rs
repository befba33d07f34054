//! How an incident is told: whose it is, what may be blamed, with which records.
//!
//! In: what was decided. Out: `Event`s. Here, and nowhere else, blame is taken from what is behind
//! a bridge or a network.

use crate::model::kernel::classify::*;
use crate::model::kernel::event::{Blame, Class, Device, Event};
use crate::model::kernel::incident::Incident;
use crate::model::kernel::name;
use crate::model::kernel::said::{Kind, Said};

impl Classifier {
    pub(super) fn tell(
        &mut self,
        incident: &mut Incident,
        telling: &Telling<'_>,
        class: Class,
        blame: Blame,
        new: bool,
        out: &mut Vec<Event>,
    ) {
        let said = telling.said;
        let suppressed = if is_rate_limited(telling.rule) {
            self.suppressed.take().map_or(0, |(count, _)| count)
        } else {
            0
        };
        incident.told.add(class);
        if new {
            incident.latest = class;
        }
        let first = incident
            .first
            .take()
            .filter(|_| new)
            .unwrap_or_else(|| telling.line.clone());
        let records = std::mem::take(&mut incident.untold).max(u64::from(new));
        out.push(Event {
            seq: telling.at.seq,
            class,
            blame: self.blame(class, blame, &said.device),
            device: said.device.clone(),
            also: said.also.iter().cloned().collect(),
            count: u64::from(new),
            records,
            suppressed,
            sectors: said.sector.into_iter().collect(),
            more_sectors: 0,
            operation: said.operation,
            corrected: said.corrected,
            rule: telling.rule.to_owned(),
            first,
            last: telling.line.clone(),
        });
    }

    /// What is behind a bridge, a network or a program is never blamed for not answering, nor is a
    /// drive whose way is in trouble.
    fn blame(&self, class: Class, blame: Blame, device: &Device) -> Blame {
        let way = matches!(
            class,
            Class::Timeout | Class::Transport | Class::Reset | Class::Removed
        );
        match self.learned.kind_of(device) {
            Kind::Direct if self.is_explained(device) && (way || class == Class::Io) => Blame::No,
            Kind::Direct => blame,
            _ if way => Blame::No,
            _ => blame.min(Blame::Unclear),
        }
    }

    pub(super) fn excuse(&mut self, said: &Said) {
        if self.excused.len() < MOST_ATTACHED {
            self.excused.push(Excused {
                device: said.device.clone(),
                sector: said.sector,
            });
        }
    }

    /// The way to this device is known to be in trouble.
    pub(super) fn is_explained(&self, device: &Device) -> bool {
        match device {
            Device::Nvme(_) => self.slot_trouble.is_some(),
            Device::Block(name) if name.starts_with("nvme") => self.slot_trouble.is_some(),
            Device::Block(name) => self.network_trouble.is_some() && name.starts_with("sd"),
            Device::Hctl(_) | Device::ScsiHost(_) => self.network_trouble.is_some(),
            _ => false,
        }
    }

    pub(super) fn is_none_of_ours(&self, said: &Said, text: &str) -> bool {
        let never = |device: &Device| match device {
            Device::Block(name) => {
                name::is_never_a_drive(name) && !self.scope.admits(name::whole(name))
            }
            _ => false,
        };
        // A host whose card is not known: it may have none.
        if matches!(&said.device, Device::Block(name) if name::is_card_host(name)) {
            return true;
        }
        never(&said.device)
            || said.also.as_ref().is_some_and(never)
            || ["sr ", "st ", "ses ", "ch ", "osst "]
                .iter()
                .any(|driver| text.starts_with(driver))
            || self.learned.kind_of(&said.device) == Kind::Other
    }
}
