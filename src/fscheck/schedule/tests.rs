use jiff::tz;
use proptest::prelude::*;

use super::*;

/// Berlin without a database of zones: POSIX TZ.
fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn calendar(text: &str) -> Schedule {
    Schedule::At(Calendar::try_from(text.to_owned()).unwrap())
}

fn next(text: &str, last: &str) -> String {
    next_due(&calendar(text), at(last), "a", Duration::ZERO, &berlin()).to_string()
}

#[test]
fn every_form_is_read_and_kept_as_it_was_written() {
    for text in [
        "daily 03:00",
        "Sun 03:00",
        "Mon,Thu 02:30",
        "1 04:00",
        "1,15 04:00",
        "sunday 3:00",
        "31 23:59",
        "Daily 00:00",
    ] {
        assert_eq!(String::from(Calendar::try_from(text.to_owned()).unwrap()), text);
    }
}

#[test]
fn an_invalid_calendar_is_rejected() {
    for text in [
        "",
        "daily",
        "03:00",
        "daily 24:00",
        "daily 03:60",
        "daily 3:0",
        "0 04:00",
        "32 04:00",
        "Foo 03:00",
        "Mon, 03:00",
        "Mon,1 03:00",
        "1,Mon 03:00",
        "daily 03:00 x",
        "daily -3:00",
        "daily +3:00",
        "daily 03:00:00",
        "M 03:00",
        "1,,2 03:00",
    ] {
        let error = Calendar::try_from(text.to_owned()).unwrap_err();
        assert_eq!(error, ParseCalendarError(text.to_owned()));
    }
    assert!(serde_json::from_str::<Calendar>("\"never\"").is_err());
}

#[test]
fn the_next_due_time_is_in_local_time() {
    assert_eq!(next("daily 03:00", "2026-01-10T01:00:00Z"), "2026-01-10T02:00:00Z");
    assert_eq!(next("daily 03:00", "2026-01-10T02:00:00Z"), "2026-01-11T02:00:00Z");
    assert_eq!(next("daily 03:00", "2026-07-10T00:00:00Z"), "2026-07-10T01:00:00Z");
    assert_eq!(next("Sun 03:00", "2026-01-10T01:00:00Z"), "2026-01-11T02:00:00Z");
    assert_eq!(next("Mon,Thu 02:30", "2026-01-12T12:00:00Z"), "2026-01-15T01:30:00Z");
    assert_eq!(next("1,15 04:00", "2026-01-15T03:00:00Z"), "2026-02-01T03:00:00Z");
    assert_eq!(next("31 04:00", "2026-01-31T12:00:00Z"), "2026-03-31T02:00:00Z");
}

#[test]
fn a_dst_change_neither_skips_nor_repeats_a_due_time() {
    // 29 March 2026: 02:30 does not exist and is 03:30. 25 October 2026: 02:30 comes twice.
    assert_eq!(next("daily 02:30", "2026-03-28T12:00:00Z"), "2026-03-29T01:30:00Z");
    assert_eq!(next("daily 02:30", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
    assert_eq!(next("daily 02:30", "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z");
}

#[test]
fn an_interval_counts_from_the_last() {
    let every = Schedule::Every(Duration::from_secs(3600));
    assert_eq!(
        next_due(&every, at("2026-01-10T01:00:00Z"), "a", Duration::ZERO, &TimeZone::UTC),
        at("2026-01-10T02:00:00Z")
    );
    assert_eq!(
        next_due(
            &Schedule::Every(Duration::MAX),
            at("2026-01-10T01:00:00Z"),
            "a",
            Duration::MAX,
            &TimeZone::UTC
        ),
        Timestamp::MAX
    );
}

#[test]
fn volumes_are_spread_evenly() {
    let mut quarters = [0; 4];
    for number in 0..4000 {
        quarters
            [(jitter_fraction(&format!("csi:driver.example/volume-{number}")) * 4.0) as usize] += 1;
    }
    assert!(quarters.iter().all(|count| (900..1100).contains(count)), "{quarters:?}");
    assert_eq!(jitter_fraction("a"), jitter_fraction("a"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|daily|Mon|[0-9:, ]){0,12}") {
        if let Ok(calendar) = Calendar::try_from(text) {
            next_due(&Schedule::At(calendar), Timestamp::UNIX_EPOCH, "a", Duration::ZERO, &tz::TimeZone::UTC);
        }
    }

    /// After the last, one strike each, never more than `jitter` late, always with the same share
    /// of it.
    #[test]
    fn due_is_after_the_last_and_within_the_jitter(
        text in proptest::sample::select(vec!["daily 03:00", "daily 02:30", "Sun 03:00", "1 04:00", "31 23:59"]),
        last in 1_700_000_000_i64..1_900_000_000, name in "[a-z]{1,8}", jitter in 0_u64..7200,
    ) {
        let (last, jitter, zone) = (Timestamp::from_second(last).unwrap(), Duration::from_secs(jitter), berlin());
        let schedule = calendar(text);
        let first = next_due(&schedule, last, &name, jitter, &zone);
        prop_assert!(first > last);
        let bare = next_due(&schedule, last.checked_sub(jitter).unwrap(), &name, Duration::ZERO, &zone);
        prop_assert!(first >= bare && first <= next_due(&schedule, last, &name, Duration::ZERO, &zone).checked_add(jitter).unwrap());
        prop_assert_eq!(first, next_due(&schedule, last, &name, jitter, &zone));
        let second = next_due(&schedule, first, &name, jitter, &zone);
        prop_assert!(second.duration_since(first).as_secs() >= 22 * 3600, "{first} {second}");
    }
}
