//! Events for tests, here and in what uses them.

use jiff::Timestamp;

use crate::event::{Blame, Class, DamagedCopies, DeviceName, Event, Line, LineOrigin, Operation};

/// Seconds after a fixed moment.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// One incident on `device`, from one record.
pub fn event(class: Class, device: &str, time: Timestamp, sectors: &[u64]) -> Event {
    let said = Line {
        time,
        text: format!("{} error, dev {device}, sectors {sectors:?}", class.name()),
        origin: LineOrigin::KernelLog,
    };
    Event {
        seq: 1,
        class,
        blame: Blame::Unclear,
        device: DeviceName::Block(device.into()),
        other_names: Vec::new(),
        count: 1,
        records: 1,
        suppressed: 0,
        sectors: sectors.to_vec(),
        more_sectors: 0,
        operation: Some(Operation::Read),
        damaged: DamagedCopies::ALL,
        rule: "test".into(),
        first: said.clone(),
        last: said,
    }
}
