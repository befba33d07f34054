//! A notification as it leaves this process. Targets take nothing else: every text in it is escaped and
//! has an end, also one of a field that is new in `Notification`.
//!
//! In: a notification of the planner or of the store. Out: what a target sends. No I/O.

use jiff::Timestamp;
use serde_json::Value;

use crate::message::{Level, Notification};
use diskvitals_text::echo::Shown;

/// `message::clean` has cut each part before, and an escape has at most nine characters.
const MAX_LINE: usize = 16 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub id: Shown,
    pub host: Shown,
    pub time: Timestamp,
    pub title: Shown,
    pub text: Shown,
    pub replies_to: Vec<Shown>,
    pub urgency: Level,
    json: Value,
}

impl Outgoing {
    pub(crate) fn new(notification: &Notification) -> Result<Outgoing, serde_json::Error> {
        let mut json = serde_json::to_value(notification)?;
        show(&mut json);
        let text = Shown::lines(&notification.text, MAX_LINE);
        json["text"] = text.as_str().into();
        Ok(Outgoing {
            id: line(&notification.id),
            host: line(&notification.host),
            time: notification.time,
            title: line(&notification.title),
            text,
            replies_to: notification.replies_to.iter().map(|id| line(id)).collect(),
            urgency: notification.urgency(),
            json,
        })
    }

    /// All members (docs/notification.schema.json).
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }
}

fn line(text: &str) -> Shown {
    Shown::line(text, MAX_LINE)
}

/// Names of members are ours.
fn show(value: &mut Value) {
    match value {
        Value::String(text) => *text = line(text).to_string(),
        Value::Array(values) => values.iter_mut().for_each(show),
        Value::Object(members) => members.values_mut().for_each(show),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::message::tests_support::sample;
    use diskvitals_text::echo::is_deceptive;

    pub(crate) const HOSTILE: &str = "a\r\nBcc: x@y\u{1b}]0;x\u{7}\u{202e}\u{200b}\u{9b}";

    fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::String(_) => found.push(at.to_owned()),
            Value::Array(values) => values
                .iter()
                .enumerate()
                .for_each(|(number, value)| paths(value, &format!("{at}/{number}"), found)),
            Value::Object(members) => members
                .iter()
                .for_each(|(name, value)| paths(value, &format!("{at}/{name}"), found)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Every text is hostile that may be any text: neither a time nor a word of a closed list.
    pub(crate) fn hostile() -> Notification {
        let mut sample = sample();
        sample.replies_to = vec![sample.id.clone()];
        let mut filled = serde_json::to_value(&sample).unwrap();
        let mut all = Vec::new();
        paths(&filled, "", &mut all);
        let mut count = 0;
        for path in &all {
            let mut tried = filled.clone();
            *tried.pointer_mut(path).unwrap() = HOSTILE.into();
            if serde_json::from_value::<Notification>(tried.clone()).is_ok() {
                filled = tried;
                count += 1;
            }
        }
        assert!(count > 20, "{count} of {all:?}");
        serde_json::from_value(filled).unwrap()
    }

    #[test]
    fn no_text_of_any_member_leaves_as_it_is() {
        let outgoing = Outgoing::new(&hostile()).unwrap();
        let mut all = Vec::new();
        paths(outgoing.json(), "", &mut all);
        for path in all {
            let text = outgoing.json().pointer(&path).and_then(Value::as_str).unwrap();
            let may_break = path == "/text";
            assert!(
                !text.contains(|c| is_deceptive(c) && !(may_break && c == '\n')),
                "{path}: {text:?}"
            );
        }
        for text in [&outgoing.id, &outgoing.host, &outgoing.title, &outgoing.replies_to[0]] {
            assert!(!text.contains(is_deceptive), "{text}");
        }
        assert!(!outgoing.text.contains(|c| is_deceptive(c) && c != '\n'), "{}", outgoing.text);
    }

    #[test]
    fn what_is_harmless_leaves_as_it_is() {
        let mut notification = sample();
        notification.text = "a\n\n  диск 盘\n".to_owned();
        let outgoing = Outgoing::new(&notification).unwrap();
        assert_eq!(*outgoing.json(), serde_json::to_value(&notification).unwrap());
        assert_eq!(
            (outgoing.title.as_str(), outgoing.text.as_str()),
            (notification.title.as_str(), notification.text.as_str())
        );
    }
}
