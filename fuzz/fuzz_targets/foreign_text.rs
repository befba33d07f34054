//! Text that stands in a foreign field of a record (the name of a program, a path, an option) never
//! produces an event, also not while a genuine incident is open.
#![no_main]

use std::borrow::Cow;

use diskvitals_kernel_log::classify::{Classifier, ClassifierOptions};
use diskvitals_kernel_log::record::Record;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

#[path = "../../src/kernel_log/tests/foreign_text.rs"]
mod foreign_text;

fn record(seq: u64, text: &str) -> Record<'_> {
    Record {
        facility: 0,
        level: None,
        seq,
        time_us: seq,
        caller: None,
        subsystem: None,
        device: None,
        text: Cow::Borrowed(text),
    }
}

fuzz_target!(|text: &str| {
    let mut classifier = Classifier::new(ClassifierOptions::default());
    let mut events = Vec::new();
    let genuine = "sd 0:0:0:0: [sda] tag#1 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK";
    classifier.push(&record(1, genuine), Timestamp::UNIX_EPOCH, &mut events);
    for (seq, foreign) in (2..).zip(foreign_text::records(text)) {
        classifier.push(&record(seq, &foreign), Timestamp::UNIX_EPOCH, &mut events);
        assert!(events.is_empty(), "{foreign}: {events:?}");
        let names = classifier.oldest_open();
        assert!(names.is_some_and(|first| first == 1), "{foreign}");
    }
});
