//! Stand-in for the classifier: `I/O error, dev X, sector N`, alone or at the end of a SCSI incident.

use jiff::Timestamp;

use crate::model::kernel::event::Attached;
use crate::model::kernel::event::Blame;
use crate::model::kernel::event::Class;
use crate::model::kernel::event::Device;
use crate::model::kernel::event::Event;
use crate::model::kernel::event::Line;
use crate::model::kernel::record::Record;

#[derive(Debug, Default)]
pub struct Classifier {
    open: Option<(u64, Line)>,
    records: u64,
    attached: Vec<Attached>,
}

impl Classifier {
    pub fn new() -> Classifier {
        Classifier::default()
    }

    pub fn push(&mut self, record: &Record<'_>, time: Timestamp, out: &mut Vec<Event>) {
        let text = &record.text;
        let line = || Line { time, text: text.to_string() };
        if text.contains("FAILED Result") {
            self.open.get_or_insert_with(|| (record.seq, line()));
            self.records += 1;
        } else if text.contains("Sense Key") {
            self.records += u64::from(self.open.is_some());
        } else if let Some((_, name)) = text.split_once("] [").or(text.split_once(": [")).filter(|_| text.contains("Attached SCSI disk")) {
            let name = name.split(']').next().unwrap_or_default().to_owned();
            self.attached.push(Attached { seq: record.seq, name, at: time });
        } else if let Some((_, rest)) = text.split_once("I/O error, dev ") {
            let name = rest.split(',').next().unwrap_or_default().to_owned();
            let sector = rest.split("sector ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
            let first = self.open.take().map_or_else(line, |(_, first)| first);
            let records = std::mem::take(&mut self.records) + 1;
            out.push(Event {
                seq: record.seq,
                class: Class::Io,
                blame: Blame::Unclear,
                device: Device::Block(name),
                also: Vec::new(),
                count: 1,
                records,
                suppressed: 0,
                sectors: sector.into_iter().collect(),
                more_sectors: 0,
                operation: None,
                corrected: false,
                rule: "stub".into(),
                first,
                last: line(),
            });
        }
    }

    pub fn oldest_open(&self) -> Option<u64> {
        self.open.as_ref().map(|(seq, _)| *seq)
    }

    pub fn take_attached(&mut self) -> Vec<Attached> {
        std::mem::take(&mut self.attached)
    }
}
