//! Records of /dev/kmsg, one after each NUL byte: none may make the parser or the classifier panic,
//! or grow without bound.
#![no_main]

use diskvitals_kernel_log::classify::{Classifier, ClassifierOptions};
use diskvitals_kernel_log::record;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut classifier = Classifier::new(ClassifierOptions::default());
    let mut events = Vec::new();
    for raw in bytes.split(|byte| *byte == 0) {
        let Ok(record) = record::parse(raw) else {
            continue;
        };
        classifier.push(&record, Timestamp::UNIX_EPOCH, &mut events);
        // A record tells of itself and of the incidents that it ends; not of more than may be open.
        assert!(events.len() <= 80, "{} events of one record", events.len());
        for event in events.drain(..) {
            assert!(
                event.count <= 1
                    && event.sectors.len() <= 1
                    && event.first.text.len() <= 1024
                    && event.last.text.len() <= 1024
            );
        }
        if let Some(from) = classifier.oldest_open() {
            assert!(from <= record.seq && record.seq - from <= 16_384);
        }
    }
    classifier.finish(Timestamp::UNIX_EPOCH, &mut events);
    assert!(classifier.oldest_open().is_none());
});
