use std::sync::mpsc::Receiver;

use super::*;
use crate::state::store::WriteRequest;
use diskvitals_finding::{Judgement, Verdict};
use diskvitals_kernel_log::event::{Batch, Class, Cursor, Event};
use diskvitals_model::fixture::{TestHost, at, event};
use diskvitals_model::source_update::SourceUpdate;
use diskvitals_smart::SmartResponse;
use diskvitals_smart::fixture::disk;
use diskvitals_smart::report::SmartReport;

struct Stored {
    sync: StoreSync,
    ops: Receiver<WriteRequest>,
    host: TestHost,
    ledger: Ledger,
}

impl Stored {
    /// A disk that has answered once, and all of it is stored.
    fn new() -> Stored {
        let (store, ops, ..) = Store::fake();
        let mut stored = Stored {
            sync: StoreSync::new(store),
            ops,
            host: TestHost::default().disk("sda", "8:0", "S1"),
            ledger: Ledger::default(),
        };
        stored.host.scan(0);
        stored.answer(disk(), 1);
        stored.sync.mark_open();
        assert!(stored.write().is_some_and(|write| write.is_complete));
        stored
    }

    fn answer(&mut self, report: SmartReport, seconds: i64) {
        let facts = &self.host.facts;
        let drive = facts.drives.keys().next().expect("a drive").clone();
        let update = SourceUpdate::Smart {
            drive,
            at: at(seconds),
            response: Box::new(SmartResponse::Report(Box::new(report))),
            duration: Duration::ZERO,
        };
        self.host.apply(update, seconds);
    }

    /// A medium error of the disk in this sector.
    fn medium_error(&mut self, sector: u64, seconds: i64) {
        let seq = sector;
        let time = at(seconds);
        let batch = Batch {
            events: vec![Event { seq, ..event(Class::Medium, "sda", time, &[sector]) }],
            cursor: Cursor {
                boot_id: "boot".into(),
                reread_from: seq,
                counted_to: Some(seq),
                lost: 0,
            },
            name_assignments: Vec::new(),
            full_reads: Vec::new(),
            is_backlog: false,
        };
        self.host.apply(SourceUpdate::KernelLog(batch), seconds);
        self.ledger.apply(self.host.judge(seconds), time);
    }

    fn is_due(&self) -> bool {
        self.sync.flood_due().is_some_and(|due| due <= Instant::now())
    }

    fn write(&mut self) -> Option<WriteBatch> {
        self.sync.write(&self.host.facts, &self.ledger, false, Vec::new());
        self.ops.try_recv().ok().map(|op| op.write)
    }
}

#[tokio::test(start_paused = true)]
async fn times_and_histories_are_written_rarely_and_what_decides_a_verdict_at_once() {
    let mut stored = Stored::new();
    for round in 1..=30 {
        tokio::time::advance(Duration::from_secs(600)).await;
        stored.host.scan(round * 600);
        stored.answer(disk().celsius(30 + round % 5, None), round * 600);
        assert!(stored.write().is_none(), "round {round}");
    }
    stored.answer(disk().raw(197, "8"), 18_001);
    let write = stored.write().expect("pending sectors");
    assert_eq!((write.smart.upserted.len(), write.drives.upserted.len()), (1, 0));

    tokio::time::advance(Duration::from_secs(3600)).await;
    stored.host.scan(21_600);
    stored.answer(disk().raw(197, "8").celsius(40, None), 21_600);
    let write = stored.write().expect("six hours have passed");
    assert_eq!((write.smart.upserted.len(), write.drives.upserted.len()), (0, 1));
    assert!(!write.is_complete && stored.write().is_none());

    tokio::time::advance(Duration::from_secs(18 * 3600)).await;
    let write = stored.write().expect("a day has passed");
    assert_eq!(write.smart.upserted.len(), 1);
    assert!(stored.write().is_none());
}

#[tokio::test(start_paused = true)]
async fn in_a_flood_a_new_finding_is_written_at_once_and_its_text_with_the_errors() {
    let mut stored = Stored::new();
    let written = |write: &WriteBatch| (write.findings.upserted.len(), write.errors.upserted.len());
    stored.medium_error(1000, 2);
    let new = stored.write().expect("a finding");
    assert_eq!(written(&new), (1, 0));
    let message = new.findings.upserted[0].1.message.clone();

    stored.medium_error(2000, 2);
    assert!(stored.write().is_none() && !stored.is_due());
    tokio::time::advance(FLOOD_WRITE_INTERVAL).await;
    assert!(stored.is_due());
    let text = stored.write().expect("its text");
    assert_eq!(written(&text), (1, 1));
    assert_ne!(text.findings.upserted[0].1.message, message);
    assert!(stored.write().is_none() && !stored.is_due());

    // A finding that ends is written at once, with the list that it leaves and the one it enters.
    let judgements = stored.host.judge(2);
    let cleared =
        judgements.into_iter().map(|judgement| Judgement { verdict: Verdict::Clear, ..judgement });
    stored.ledger.apply(cleared.collect(), at(3));
    let over = stored.write().expect("its end");
    assert_eq!(written(&over), (1, 0));
    assert!(over.findings.upserted[0].1.cleared.is_some());
    assert!(stored.write().is_none());
}
