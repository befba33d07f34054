//! How an incident is told: whose it is, what may be blamed, with which records.
//!
//! In: what was decided. Out: `Event`s. Here, and nowhere else, blame is taken from what is behind
//! a bridge or a network.

use crate::model::kernel_log::classify::*;
use crate::model::kernel_log::device_name;
use crate::model::kernel_log::event::{Blame, Class, DeviceName, Event};
use crate::model::kernel_log::incident::Incident;
use crate::model::kernel_log::parsed_record::{DeviceKind, ParsedRecord};

impl Classifier {
    pub(super) fn emit(
        &mut self,
        incident: &mut Incident,
        context: &RecordContext<'_>,
        class: Class,
        blame: Blame,
        new: bool,
        out: &mut Vec<Event>,
    ) {
        let parsed = context.parsed;
        let suppressed = if context.rule.behavior.is_rate_limited {
            self.suppressed.take().map_or(0, |(count, _)| count)
        } else {
            0
        };
        incident.reported.insert(class);
        if new {
            incident.latest_class = class;
        }
        let first = incident
            .first_unreported
            .take()
            .filter(|_| new)
            .unwrap_or_else(|| context.line.clone());
        let records = std::mem::take(&mut incident.unreported_records).max(u64::from(new));
        out.push(Event {
            seq: context.position.seq,
            class,
            blame: self.adjust_blame(class, blame, &parsed.device),
            device: parsed.device.clone(),
            other_names: parsed.other_name.iter().cloned().collect(),
            count: u64::from(new),
            records,
            suppressed,
            sectors: parsed.sector.into_iter().collect(),
            more_sectors: 0,
            operation: parsed.operation,
            corrected: parsed.corrected,
            rule: context.rule.name.to_owned(),
            first,
            last: context.line.clone(),
        });
    }

    /// What is behind a bridge, a network or a program is never blamed for not answering, nor is a
    /// drive whose way is in trouble.
    fn adjust_blame(&self, class: Class, blame: Blame, device: &DeviceName) -> Blame {
        match self.device_map.kind_of(device) {
            DeviceKind::Direct
                if self.has_path_outage(device)
                    && (class.is_path_class() || class == Class::Io) =>
            {
                Blame::No
            }
            DeviceKind::Direct => blame,
            _ if class.is_path_class() => Blame::No,
            _ => blame.min(Blame::Unclear),
        }
    }

    pub(super) fn add_rejected_request(&mut self, parsed: &ParsedRecord) {
        if self.rejected_requests.len() < MAX_PENDING_NOTICES {
            self.rejected_requests.push(RejectedRequest {
                device: parsed.device.clone(),
                sector: parsed.sector,
            });
        }
    }

    /// The way to this device is known to be in trouble.
    pub(super) fn has_path_outage(&self, device: &DeviceName) -> bool {
        match device {
            DeviceName::Nvme(_) => self.slot_outage.is_some(),
            DeviceName::Block(name) if name.starts_with("nvme") => self.slot_outage.is_some(),
            DeviceName::Block(name) => self.network_outage.is_some() && name.starts_with("sd"),
            DeviceName::Hctl(_) | DeviceName::ScsiHost(_) => self.network_outage.is_some(),
            _ => false,
        }
    }

    pub(super) fn is_excluded(&self, parsed: &ParsedRecord, text: &str) -> bool {
        let never = |device: &DeviceName| match device {
            DeviceName::Block(name) => {
                device_name::is_never_drive(name)
                    && !self.options.admits(device_name::whole_disk(name))
            }
            _ => false,
        };
        // A host whose card is not known: it may have none.
        if matches!(&parsed.device, DeviceName::Block(name) if device_name::is_mmc_host(name)) {
            return true;
        }
        never(&parsed.device)
            || parsed.other_name.as_ref().is_some_and(never)
            || ["sr ", "st ", "ses ", "ch ", "osst "]
                .iter()
                .any(|driver| text.starts_with(driver))
            || self.device_map.kind_of(&parsed.device) == DeviceKind::Other
    }
}
