use std::sync::Mutex;

use tokio::sync::{mpsc, watch};
use tonic::Code;

use super::*;
use crate::state::handle::Command;
use diskvitals_model::fixture::published;
use diskvitals_model::snapshot::Snapshot;

/// What happened, in order: `remember`, `forget`, `on`, `off`.
type Events = Arc<Mutex<Vec<String>>>;

struct Backend {
    events: Events,
    lamp: Option<&'static str>,
    /// It does not follow.
    is_stuck: bool,
}

#[tonic::async_trait]
impl LampBackend for Backend {
    async fn find(&self, _: &DriveFacts) -> Result<Option<LampPlace>, String> {
        Ok(self.lamp.map(|slot| LampPlace::Vmd { slot: slot.to_owned() }))
    }

    async fn switch(&self, place: &LampPlace, is_on: bool) -> Result<(), String> {
        let word = if is_on { "on" } else { "off" };
        self.events.lock().unwrap().push(format!("{word} {place}"));
        if self.is_stuck { Err("it does not follow".to_owned()) } else { Ok(()) }
    }
}

struct Fixture {
    lamps: Lamps,
    events: Events,
    _snapshots: watch::Sender<Arc<Snapshot>>,
}

impl Fixture {
    /// With an owner that only answers.
    fn start(snapshot: Snapshot, lamp: Option<&'static str>, is_stuck: bool) -> Fixture {
        let (snapshots, receiver) = watch::channel(Arc::new(snapshot));
        let (commands, mut orders) = mpsc::channel(8);
        let events = Events::default();
        let told = events.clone();
        tokio::spawn(async move {
            while let Some(command) = orders.recv().await {
                match command {
                    Command::RememberLamp { by, place, reply, .. } => {
                        told.lock().unwrap().push("remember".to_owned());
                        let order = LampOrder { by, since: clock::now(), place };
                        let _ = reply.send(Ok(Arc::new(order)));
                    }
                    Command::ForgetLamp { .. } => told.lock().unwrap().push("forget".to_owned()),
                    other => panic!("{other:?}"),
                }
            }
        });
        let backend = Arc::new(Backend { events: events.clone(), lamp, is_stuck });
        let lamps = Lamps::new(Handle::new(receiver, commands), backend);
        Fixture { lamps, events, _snapshots: snapshots }
    }

    async fn events(&self) -> Vec<String> {
        tokio::task::yield_now().await;
        self.events.lock().unwrap().clone()
    }
}

fn lit(slot: &str, age: Duration) -> Arc<LampOrder> {
    let since = clock::now().checked_sub(age).unwrap();
    let place = LampPlace::Vmd { slot: slot.to_owned() };
    Arc::new(LampOrder { by: "uid 0 (root)".to_owned(), since, place })
}

#[tokio::test]
async fn a_lamp_is_remembered_before_it_is_lit_and_stays_remembered_if_it_does_not_follow() {
    for is_stuck in [false, true] {
        let fixture = Fixture::start(Snapshot::default(), Some("4"), is_stuck);
        let answer = fixture.lamps.light(&published("sda", "S1"), "uid 0 (root)".to_owned()).await;
        assert_eq!(answer.is_err(), is_stuck);
        assert_eq!(fixture.events().await, ["remember", "on PCI slot 4"]);
    }
}

#[tokio::test]
async fn of_a_drive_that_has_moved_the_former_lamp_is_turned_off_first() {
    let fixture = Fixture::start(Snapshot::default(), Some("4"), false);
    let drive = Drive { lamp: Some(lit("3", Duration::ZERO)), ..published("sda", "S1") };
    fixture.lamps.light(&drive, String::new()).await.unwrap();
    assert_eq!(fixture.events().await, ["off PCI slot 3", "remember", "on PCI slot 4"]);
}

#[tokio::test]
async fn the_lamp_that_was_lit_is_turned_off_also_when_the_drive_is_gone() {
    let fixture = Fixture::start(Snapshot::default(), None, false);
    let presence = Presence::Missing { since: clock::now() };
    let drive = Drive { lamp: Some(lit("3", Duration::ZERO)), presence, ..published("sda", "S1") };
    assert_eq!(fixture.lamps.turn_off(&drive).await.unwrap().place, "PCI slot 3");
    assert_eq!(fixture.events().await, ["off PCI slot 3", "forget"]);
}

#[tokio::test]
async fn a_lamp_that_does_not_go_off_stays_remembered() {
    let fixture = Fixture::start(Snapshot::default(), None, true);
    let drive = Drive { lamp: Some(lit("3", Duration::ZERO)), ..published("sda", "S1") };
    let refused = fixture.lamps.turn_off(&drive).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(fixture.events().await, ["off PCI slot 3"]);
}

#[tokio::test]
async fn without_a_lamp_the_answer_is_how_to_find_the_drive() {
    let fixture = Fixture::start(Snapshot::default(), None, false);
    let mut drive = published("sda", "S1");
    drive.facts.location.path = Some("pci-0000:00:17.0-ata-3".to_owned());
    let refused = fixture.lamps.light(&drive, String::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = refused.message();
    assert!(text.contains("serial S1") && text.contains("port pci-0000:00:17.0-ata-3"), "{text}");
    drive.facts.location.raid_controller = Some("megaraid host0".to_owned());
    let refused = fixture.lamps.light(&drive, String::new()).await.unwrap_err();
    assert!(refused.message().contains("start locate"), "{}", refused.message());
    assert!(fixture.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lamp_goes_off_after_a_day_also_after_a_restart_and_a_younger_one_stays() {
    let day = Duration::from_secs(24 * 3600);
    let lamps = [("A", lit("1", day)), ("B", lit("2", day / 2))];
    let lamps = lamps.map(|(id, lamp)| (DriveId::known(id), lamp));
    let snapshot = Snapshot { lamps: Arc::new(lamps.into()), ..Snapshot::default() };
    let fixture = Fixture::start(snapshot, None, false);
    let task = tokio::spawn(fixture.lamps.clone().turn_off_old());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.events().await, ["off PCI slot 1", "forget"]);
    task.abort();
}
