//! Merges events: turns a flood of incidents into a bounded number of events with exact counts.
//!
//! In: events in the order of `seq`. Out: the same incidents in fewer events. Only events of the
//! same device and kind are merged, as long as that suffices. Events before and after a name
//! assignment, or before and after the counted position, are never merged.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use crate::event::{Blame, Class, DeviceName, Event, MAX_SECTORS, NameAssignment};

/// Maximum number of events per batch.
pub const MAX_EVENTS: usize = 256;
/// Maximum number of other names per event.
const MAX_OTHER_NAMES: usize = 8;
/// Incidents with a longer gap are not merged while there is room: rules count incidents within a
/// time window.
const MERGE_SPAN: Duration = Duration::from_secs(1);
/// Maximum number of events that remain when the rest is folded by class, before and after the
/// counted position.
const MAX_FOLDED: usize = 2 * Class::ALL.len();

/// Positions across which events must not be merged.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeBoundaries<'a> {
    /// Events up to this record are counted already.
    pub counted_to: Option<u64>,
    /// From these records on, names mean other devices. In the order of `seq`.
    pub name_assignments: &'a [NameAssignment],
}

impl MergeBoundaries<'_> {
    fn is_counted(&self, event: &Event) -> bool {
        self.counted_to.is_some_and(|counted| event.seq <= counted)
    }

    fn segment(&self, event: &Event) -> (bool, usize) {
        (
            self.is_counted(event),
            self.name_assignments.partition_point(|attached| attached.seq <= event.seq),
        )
    }
}

/// At most `MAX_EVENTS` events, in the order of `seq`. The sums of counts, records and suppressed
/// stay the same.
pub fn rollup(events: Vec<Event>, boundaries: MergeBoundaries<'_>) -> Vec<Event> {
    if events.len() < 2 {
        return events;
    }
    let same_kind = |event: &Event| {
        (
            boundaries.segment(event),
            event.device.clone(),
            event.class,
            event.blame,
            event.damaged,
            event.operation,
        )
    };
    let near = |group: &Event, event: &Event| {
        event.last.time.duration_since(group.first.time).unsigned_abs() <= MERGE_SPAN
    };
    let events = merge(events, same_kind, near);
    if events.len() <= MAX_EVENTS {
        return events;
    }
    let events = merge(events, same_kind, |_, _| true);
    if events.len() <= MAX_EVENTS {
        return events;
    }
    let events = merge(
        events,
        |event| (boundaries.segment(event), event.device.clone(), event.class),
        |_, _| true,
    );
    if events.len() <= MAX_EVENTS {
        return events;
    }
    fold(events, boundaries)
}

/// The events with the highest weight keep their device; the rest is folded by class.
fn fold(events: Vec<Event>, boundaries: MergeBoundaries<'_>) -> Vec<Event> {
    let mut by_weight: Vec<(std::cmp::Reverse<(Blame, u64)>, u64)> = events
        .iter()
        .map(|event| (std::cmp::Reverse((event.blame, event.count)), event.seq))
        .collect();
    by_weight.sort_unstable();
    let kept: BTreeSet<u64> =
        by_weight.into_iter().take(MAX_EVENTS - MAX_FOLDED).map(|(_, seq)| seq).collect();
    let (mut named, rest): (Vec<Event>, Vec<Event>) =
        events.into_iter().partition(|event| kept.contains(&event.seq));
    // Sequence numbers are distinct in a log. If they are not, the bound must still hold.
    let surplus = named.split_off(named.len().min(MAX_EVENTS - MAX_FOLDED));
    let unnamed = rest.into_iter().chain(surplus).map(without_device).collect();
    named.extend(merge(unnamed, |event| (boundaries.is_counted(event), event.class), |_, _| true));
    named.sort_by_key(|event| event.seq);
    named
}

/// Sectors and other names are meaningless without the device.
fn without_device(mut event: Event) -> Event {
    event.more_sectors = event.more_sectors.saturating_add(event.sectors.len() as u64);
    event.sectors.clear();
    event.other_names.clear();
    event.device = DeviceName::Unnamed;
    event
}

/// One event per key while `fits` allows it; otherwise a new one.
fn merge<K: Hash + Eq>(
    events: Vec<Event>,
    key: impl Fn(&Event) -> K,
    fits: impl Fn(&Event, &Event) -> bool,
) -> Vec<Event> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open: HashMap<K, usize> = HashMap::new();
    for event in events {
        let key = key(&event);
        match open
            .get(&key)
            .and_then(|at| groups.get_mut(*at))
            .filter(|group| fits(&group.event, &event))
        {
            Some(group) => group.add(event),
            None => {
                open.insert(key, groups.len());
                groups.push(Group { sectors: None, event });
            }
        }
    }
    let mut events: Vec<Event> = groups.into_iter().map(Group::into_event).collect();
    events.sort_by_key(|event| event.seq);
    events
}

struct Group {
    event: Event,
    /// All distinct sectors, from the second event on.
    sectors: Option<BTreeSet<u64>>,
}

impl Group {
    fn add(&mut self, other: Event) {
        let event = &mut self.event;
        event.count = event.count.saturating_add(other.count);
        event.records = event.records.saturating_add(other.records);
        event.suppressed = event.suppressed.saturating_add(other.suppressed);
        // An upper bound: the same sector may be beyond the limit of both.
        event.more_sectors = event.more_sectors.saturating_add(other.more_sectors);
        self.sectors.get_or_insert_with(|| event.sectors.drain(..).collect()).extend(other.sectors);
        for name in std::iter::once(other.device).chain(other.other_names) {
            if event.other_names.len() < MAX_OTHER_NAMES
                && name != event.device
                && name != DeviceName::Unnamed
                && !event.other_names.contains(&name)
            {
                event.other_names.push(name);
            }
        }
        if event.operation != other.operation {
            event.operation = None;
        }
        if event.blame != other.blame {
            event.blame = Blame::Unclear;
        }
        // Later records of an incident that was reported say nothing of their own.
        if event.count == other.count {
            event.damaged = other.damaged;
        } else if other.count > 0 {
            event.damaged = event.damaged.worst_of(other.damaged);
        }
        if other.seq >= event.seq {
            event.seq = other.seq;
            event.last = other.last;
        }
        if other.first.time < event.first.time {
            event.first = other.first;
        }
    }

    fn into_event(self) -> Event {
        let Group { mut event, sectors } = self;
        if let Some(sectors) = sectors {
            event.more_sectors =
                event.more_sectors.saturating_add(sectors.len().saturating_sub(MAX_SECTORS) as u64);
            event.sectors = sectors.into_iter().take(MAX_SECTORS).collect();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::event::{DamagedCopies, Line, LineOrigin, Operation};

    fn line(millisecond: i64, text: &str) -> Line {
        Line {
            time: Timestamp::from_millisecond(millisecond).expect("in range"),
            text: text.to_owned(),
            origin: LineOrigin::KernelLog,
        }
    }

    fn event(seq: u64, device: &str, sector: u64) -> Event {
        let at = line(seq.cast_signed(), &format!("{device} {sector} #{seq}"));
        Event {
            seq,
            class: Class::Medium,
            blame: Blame::Yes,
            device: DeviceName::Block(device.to_owned()),
            other_names: Vec::new(),
            count: 1,
            records: 3,
            suppressed: 0,
            sectors: vec![sector],
            more_sectors: 0,
            operation: Some(Operation::Read),
            damaged: DamagedCopies::ALL,
            rule: "test".to_owned(),
            first: at.clone(),
            last: at,
        }
    }

    #[test]
    fn a_flood_of_one_drive_is_one_event_with_its_first_and_last_record() {
        let flood: Vec<Event> = (0..900).map(|seq| event(seq, "sda", seq % 40)).collect();
        let rolled = rollup(flood, MergeBoundaries::default());
        assert_eq!(rolled.len(), 1);
        let all = &rolled[0];
        assert_eq!((all.seq, all.count, all.records), (899, 900, 2700));
        assert_eq!((all.sectors.len(), all.more_sectors), (MAX_SECTORS, 8));
        assert_eq!((all.first.text.as_str(), all.last.text.as_str()), ("sda 0 #0", "sda 19 #899"));
    }

    #[test]
    fn distant_incidents_are_merged_only_above_the_limit() {
        let rolled = rollup(
            (0..100).map(|hour| event(hour * 3_600_000, "sda", 8)).collect(),
            MergeBoundaries::default(),
        );
        assert_eq!(rolled.len(), 100);
        let rolled = rollup(
            (0..1000).map(|hour| event(hour * 3_600_000, "sda", 8)).collect(),
            MergeBoundaries::default(),
        );
        assert_eq!((rolled.len(), rolled[0].count), (1, 1000));
    }

    #[test]
    fn events_are_not_merged_across_a_name_assignment() {
        let attached = [NameAssignment {
            seq: 2,
            name: "sda".into(),
            at: Timestamp::UNIX_EPOCH,
            is_filesystem: false,
            is_remount: false,
        }];
        let rolled = rollup(
            vec![event(1, "sda", 8), event(3, "sda", 8), event(4, "sda", 8)],
            MergeBoundaries { counted_to: None, name_assignments: &attached },
        );
        assert_eq!(
            rolled.iter().map(|event| (event.seq, event.count)).collect::<Vec<_>>(),
            [(1, 1), (4, 2)]
        );
    }

    #[test]
    fn counted_events_are_not_merged_with_uncounted_ones() {
        let rolled = rollup(
            (1..=10).map(|seq| event(seq, "sda", 8)).collect(),
            MergeBoundaries { counted_to: Some(4), name_assignments: &[] },
        );
        assert_eq!(
            rolled.iter().map(|event| (event.seq, event.count)).collect::<Vec<_>>(),
            [(4, 4), (10, 6)]
        );
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let damaged =
            (0..3_u8, 0..3_u8).prop_map(|(data, metadata)| DamagedCopies { data, metadata });
        let kind = (0..Class::ALL.len(), 0..3_usize, damaged, 0..3_usize);
        (
            1..50_u64,
            0..600_u32,
            kind,
            prop::collection::btree_set(0..100_u64, 0..4),
            0..5_u64,
            0..4_u64,
        )
            .prop_map(
                |(step, device, (class, blame, damaged, operation), sectors, count, more)| Event {
                    class: Class::ALL[class],
                    blame: [Blame::No, Blame::Unclear, Blame::Yes][blame],
                    damaged,
                    operation: [None, Some(Operation::Read), Some(Operation::Write)][operation],
                    count,
                    suppressed: more,
                    more_sectors: more,
                    sectors: sectors.into_iter().collect(),
                    ..event(step, &format!("sd{device}"), 0)
                },
            )
    }

    proptest! {
        // A thousand events a case.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn counts_add_up_and_the_batch_is_bounded(mut events in prop::collection::vec(any_event(), 0..1500), counted in prop::option::of(0..20_000_u64), boundaries in prop::collection::btree_set(0..40_000_u64, 0..20)) {
            // The steps become growing sequence numbers and times.
            let mut seq = 0;
            for event in &mut events {
                seq += event.seq;
                let at = line(seq.cast_signed() * 10, &format!("#{seq}"));
                (event.seq, event.first, event.last) = (seq, at.clone(), at);
            }
            let attached: Vec<NameAssignment> = boundaries.into_iter().map(|seq| NameAssignment { seq, name: "sda".into(), at: Timestamp::UNIX_EPOCH, is_filesystem: false, is_remount: false }).collect();
            let boundaries = MergeBoundaries { counted_to: counted, name_assignments: &attached };
            let rolled = rollup(events.clone(), boundaries);
            let sum = |events: &[Event], of: fn(&Event) -> u64, counted: bool| events.iter().filter(|event| boundaries.is_counted(event) == counted).map(of).sum::<u64>();
            for side in [false, true] {
                for of in [(|event: &Event| event.count) as fn(&Event) -> u64, |event| event.records, |event| event.suppressed] {
                    prop_assert_eq!(sum(&rolled, of, side), sum(&events, of, side));
                }
                for class in Class::ALL {
                    let of_class = |events: &[Event]| events.iter().filter(|event| event.class == class && boundaries.is_counted(event) == side).map(|event| event.count).sum::<u64>();
                    prop_assert_eq!(of_class(&rolled), of_class(&events));
                }
            }
            prop_assert!(rolled.len() <= MAX_EVENTS, "{}", rolled.len());
            prop_assert!(rolled.windows(2).all(|pair| pair[0].seq < pair[1].seq));
            for event in &rolled {
                prop_assert!(event.sectors.len() <= MAX_SECTORS && event.sectors.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(event.first.time <= event.last.time);
                prop_assert!(event.device == DeviceName::Unnamed || events.iter().any(|one| one.device == event.device && one.class == event.class));
            }
            if let (Some(first), Some(last)) = (events.first(), events.last()) {
                prop_assert_eq!(rolled.iter().map(|event| &event.first.text).min_by_key(|text| text[1..].parse::<u64>().expect("ours")), Some(&first.first.text));
                prop_assert_eq!(&rolled[rolled.len() - 1].last.text, &last.last.text);
            }
            // Merging again changes nothing that counts.
            let again = rollup(rolled.clone(), boundaries);
            prop_assert_eq!(sum(&again, |event| event.count, false), sum(&rolled, |event| event.count, false));
        }
    }
}
