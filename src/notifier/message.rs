//! A notification: what is sent, as data. Its JSON is the documented format
//! (docs/notification.schema.json); a mail and a chat show its title and text.
//!
//! In: transitions of causes, from the planner. Out: values with escaped, bounded text. No I/O.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use diskvitals_finding::reason::Reason;
use diskvitals_text::echo::Shown;
use diskvitals_text::hash::sha256_short;

/// The format and its version. A change that a reader could trip over gets another number.
pub(crate) const SCHEMA: &str = "diskvitals.notification/v1";

/// Longest name or line of text, in characters.
const MAX_TEXT: usize = 1024;

/// How bad it is, ascending. `Unknown` is between what is well and what is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Level {
    Good,
    Info,
    Unknown,
    Suspect,
    Bad,
}

impl Level {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Info => "info",
            Level::Unknown => "unknown",
            Level::Suspect => "SUSPECT",
            Level::Bad => "BAD",
        }
    }
}

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// Transitions of causes.
    Changes,
    /// Causes that are still there.
    Reminder,
    /// Transitions that quiet hours or the daily limit have held back.
    Summary,
    Digest,
    DaemonSilent,
    DaemonBack,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Transition {
    Raised,
    Worse,
    Cleared,
    Acknowledged,
    /// No transition: it is still there.
    Present,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transition::Raised => "raised",
            Transition::Worse => "worse",
            Transition::Cleared => "cleared",
            Transition::Acknowledged => "acknowledged",
            Transition::Present => "still there",
        })
    }
}

/// One cause, as a notification describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub transition: Transition,
    pub time: Timestamp,
    pub severity: Level,
    /// The id of the cause: the same when it returns.
    pub cause: String,
    /// `drive`, `array`, `pool`, `device` or `mount`; `finding` for one that was raised and cleared
    /// unobserved.
    pub kind: String,
    /// `sda`, `md127`, `vg/pool`, `/srv`.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub slot: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial: String,
    pub reasons: Vec<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub hits: Vec<Hit>,
    pub more_hits: u64,
    /// The hits are on the drive, and none follows it: wear, heat and other hints for planning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_on_it: bool,
    pub evidence: Vec<Evidence>,
    pub action: String,
    /// Shows everything about it on the host.
    pub command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared: Option<Cleared>,
    /// Of a cleared item: the daemon reports its drive or volume as healthy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub good: bool,
    /// An unprivileged user can make it: a pod that fills its volume, a user's mount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub user_made: bool,
}

impl Item {
    /// What leads a message and is kept when not all fits in. What is new or still there comes before
    /// what a person has noted, and that before what is over; the node's own storage before all that
    /// users can make; then the worst.
    pub(crate) fn rank(&self) -> impl Ord + Copy + use<> {
        let openness = match self.transition {
            Transition::Raised | Transition::Worse | Transition::Present => 2,
            Transition::Acknowledged => 1,
            Transition::Cleared => 0,
        };
        let leads = self.reasons.iter().any(|it| it.parse().is_ok_and(Reason::leads));
        (!self.user_made, openness, self.severity, leads)
    }

    /// One record of evidence, one hit, and the number of the others.
    pub(crate) fn shorten(&mut self) {
        self.evidence.truncate(1);
        let left = self.hits.len().saturating_sub(1);
        self.hits.truncate(1);
        self.more_hits += left as u64;
    }
}

/// What is on a cause: a mount point, a pod, a PersistentVolume, a device, swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hit {
    pub kind: String,
    pub name: String,
    /// Redundancy keeps it intact.
    pub covered: bool,
    /// It is covered, and no redundancy is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_copy: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Evidence {
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acknowledged {
    pub by: String,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cleared {
    pub time: Timestamp,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Notification {
    pub schema: String,
    /// The idempotency key: the same in every attempt, also after a crash.
    pub id: String,
    pub kind: Kind,
    pub severity: Level,
    pub host: String,
    pub time: Timestamp,
    pub title: String,
    pub text: String,
    pub items: Vec<Item>,
    /// Ids of the messages that raised what this one is about: their thread goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replies_to: Vec<String>,
}

impl Notification {
    /// It is about nothing but what unprivileged users can make.
    pub(crate) fn is_user_made(&self) -> bool {
        let is_about_them = || self.items.iter().all(|item| item.user_made);
        // A digest is about the whole node.
        self.kind != Kind::Digest && !self.items.is_empty() && is_about_them()
    }

    /// How loudly it calls: a recovery and an acknowledgement need nobody, however bad the problem
    /// was. `severity` is for filters, which let the recovery through where the raise went.
    pub(crate) fn urgency(&self) -> Level {
        let is_open = |item: &&Item| {
            !matches!(item.transition, Transition::Cleared | Transition::Acknowledged)
        };
        let open = self.items.iter().filter(is_open);
        match self.items.is_empty() {
            true => self.severity,
            false => open.map(|item| item.severity).max().unwrap_or(Level::Info),
        }
    }
}

/// An id that depends on what it identifies alone.
pub(crate) fn stable_id<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    // A zero byte ends each part: escaped text has none.
    let bytes: Vec<u8> =
        parts.into_iter().flat_map(|part| part.bytes().chain(std::iter::once(0))).collect();
    sha256_short(&bytes)
}

/// Text of others, for any output: what a terminal or a mail reader would not show as itself is
/// written as an escape, and it has an end.
pub(crate) fn clean(text: &str) -> String {
    Shown::line(text, MAX_TEXT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_has_no_newline_control_or_bidi_character_and_an_end() {
        assert_eq!(clean("a\r\nBcc: x@y\u{202e}\u{1b}[31m"), r"a\r\nBcc: x@y\u{202e}\u{1b}[31m");
        assert_eq!(clean("диск 盘"), "диск 盘");
        assert_eq!(clean(&"x".repeat(5000)).chars().count(), MAX_TEXT + 1);
    }

    #[test]
    fn the_schema_describes_every_member_of_a_notification() {
        use serde_json::Value;
        let schema: Value =
            serde_json::from_str(include_str!("../../docs/notification.schema.json"))
                .expect("JSON");
        let mut notification = tests_support::sample();
        notification.replies_to = vec![notification.id.clone()];
        notification.items[0].detail = "raid1".to_owned();
        notification.items[0].good = true;
        notification.items[0].user_made = true;
        notification.items[0].acknowledged =
            Some(Acknowledged { by: "ops".to_owned(), note: "ordered".to_owned() });
        notification.items[0].cleared =
            Some(Cleared { time: Timestamp::UNIX_EPOCH, why: "replaced".to_owned() });
        let value = serde_json::to_value(&notification).expect("JSON");
        let check = |described: &Value, value: &Value| {
            let members = value.as_object().expect("an object");
            for name in members.keys() {
                assert!(!described["properties"][name].is_null(), "{name} is not described");
            }
            for name in described["required"].as_array().expect("a list") {
                assert!(members.contains_key(name.as_str().expect("a name")), "{name} is missing");
            }
        };
        let item = &schema["$defs"]["item"];
        check(&schema, &value);
        check(item, &value["items"][0]);
        for list in ["hits", "evidence"] {
            check(&item["properties"][list]["items"], &value["items"][0][list][0]);
        }
        for object in ["acknowledged", "cleared"] {
            check(&item["properties"][object], &value["items"][0][object]);
        }
        assert_eq!(schema["properties"]["schema"]["const"], SCHEMA);
        let kinds = &schema["properties"]["kind"]["enum"];
        for kind in [
            Kind::Changes,
            Kind::Reminder,
            Kind::Summary,
            Kind::Digest,
            Kind::DaemonSilent,
            Kind::DaemonBack,
            Kind::Test,
        ] {
            let name = serde_json::to_value(kind).expect("JSON");
            assert!(kinds.as_array().expect("a list").contains(&name), "{name}");
        }
    }

    #[test]
    fn an_id_depends_on_its_parts_and_on_where_each_ends() {
        assert_eq!(stable_id(["a", "b"]), stable_id(["a", "b"]));
        assert_ne!(stable_id(["ab", ""]), stable_id(["a", "b"]));
    }
}

#[cfg(test)]
pub(crate) mod tests_support {
    use super::*;

    /// A notification about one failing drive.
    pub(crate) fn sample() -> Notification {
        let item = Item {
            transition: Transition::Raised,
            time: "2026-11-24T02:00:05Z".parse().expect("a time"),
            severity: Level::Bad,
            cause: "drive:naa.5000c500a1b2c3d4".to_owned(),
            kind: "drive".to_owned(),
            name: "sda".to_owned(),
            detail: String::new(),
            slot: "03".to_owned(),
            model: "ST4000NM0033".to_owned(),
            serial: "Z1Z0ABCD".to_owned(),
            reasons: vec!["SmartFailing".to_owned(), "PendingSectors (24)".to_owned()],
            message: "the drive reports that it is failing".to_owned(),
            since: Some("2026-11-24T02:00:00Z".parse().expect("a time")),
            hits: vec![
                Hit {
                    kind: "mount".to_owned(),
                    name: "/srv".to_owned(),
                    covered: false,
                    last_copy: false,
                },
                Hit {
                    kind: "pod".to_owned(),
                    name: "db/mysql-0".to_owned(),
                    covered: false,
                    last_copy: false,
                },
                Hit {
                    kind: "mount".to_owned(),
                    name: "/home".to_owned(),
                    covered: true,
                    last_copy: false,
                },
            ],
            more_hits: 2,
            only_on_it: false,
            evidence: vec![Evidence {
                source: "smartctl".to_owned(),
                time: Some("2026-11-24T02:00:00Z".parse().expect("a time")),
                text: "SMART overall-health self-assessment test result: FAILED!".to_owned(),
            }],
            action: "Replace the drive now.".to_owned(),
            command: "diskvitals explain sda".to_owned(),
            acknowledged: None,
            cleared: None,
            good: false,
            user_made: false,
        };
        Notification {
            schema: SCHEMA.to_owned(),
            id: "00112233445566778899aabbccddeeff".to_owned(),
            kind: Kind::Changes,
            severity: Level::Bad,
            host: "node7".to_owned(),
            time: "2026-11-24T02:00:08Z".parse().expect("a time"),
            title: "[BAD] node7: sda (slot 03): SmartFailing".to_owned(),
            text: "text\n".to_owned(),
            items: vec![item],
            replies_to: Vec::new(),
        }
    }
}
