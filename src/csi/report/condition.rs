//! The node condition `StorageHealthy`: the daemon's picture of the node as one word, a reason and
//! a message.
//!
//! In: what is seen of the daemon. Out: the condition, or nothing while it is not known yet what to
//! say. Pure. It is True only where all is known and nothing is found; where something cannot be
//! told it is Unknown.

use crate::csi::limits;
use crate::csi::report::event::reason as camel;
use crate::csi::report::picture::{Drive, Health, Level, Picture, Trouble};
use crate::csi::report::{Lost, Sight};

pub const TYPE: &str = "StorageHealthy";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub status: Status,
    pub reason: String,
    /// As [`limits::message`] makes it.
    pub message: String,
}

/// `patient`: the daemon's absence, if there is one, is not yet worth telling.
pub fn condition(sight: &Sight, patient: bool) -> Option<Condition> {
    match (&sight.lost, &sight.picture) {
        (Some(_), _) if patient => None,
        (Some(Lost { why, .. }), _) => Some(unknown(
            "DaemonNotAnswering",
            &format!("diskvitalsd on this node cannot be asked: {why}"),
        )),
        (None, Some(picture)) => Some(of(picture)),
        (None, None) => None,
    }
}

fn of(picture: &Picture) -> Condition {
    let adverse = picture.adverse();
    let counted: Vec<&Trouble> = adverse
        .iter()
        .map(|(_, trouble)| *trouble)
        .filter(|trouble| picture.counts(trouble))
        .collect();
    if let Some(worst) = counted.first() {
        let number = |level| {
            counted
                .iter()
                .filter(|trouble| trouble.level == level)
                .count()
        };
        let numbers = [
            (number(Level::Bad), "bad"),
            (number(Level::Suspect), "suspect"),
        ];
        let numbers: Vec<String> = numbers
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, word)| format!("{n} {word}"))
            .collect();
        let each: Vec<String> = counted
            .iter()
            .map(|trouble| {
                format!(
                    "{}: {}: {}",
                    trouble.reason,
                    picture.name(&trouble.about),
                    trouble.message
                )
            })
            .collect();
        return Condition {
            status: Status::False,
            reason: camel(&worst.reason),
            message: bounded(&format!(
                "{}: {}{}",
                numbers.join(", "),
                each.join("; "),
                unknowns(picture)
            )),
        };
    }
    match picture.health {
        Health::Good if picture.drives.values().any(|drive| untold(drive).is_some()) => {
            unknown("HealthUnknown", unknowns(picture).trim_start_matches("; "))
        }
        Health::Good => {
            let left_out = adverse.len();
            let left_out = if left_out == 0 {
                String::new()
            } else {
                format!("; {left_out} acknowledged or under maintenance")
            };
            let message = format!(
                "nothing is found against {} drives and {} volumes{left_out}",
                picture.drives.len(),
                picture.volumes.len()
            );
            Condition {
                status: Status::True,
                reason: "NothingFound".into(),
                message,
            }
        }
        // The daemon counts something that is not in the picture, or a newer one says it in other
        // words: not healthy, and why is not known here.
        Health::Bad | Health::Suspect => unknown(
            "HealthUnknown",
            "the daemon says that something is wrong, and not what",
        ),
        Health::Unknown => {
            let whys = unknowns(picture);
            let whys = if whys.is_empty() {
                "; the daemon does not see all drives or mounts".to_owned()
            } else {
                whys
            };
            unknown("HealthUnknown", whys.trim_start_matches("; "))
        }
    }
}

/// What cannot be told, each with its reason.
fn unknowns(picture: &Picture) -> String {
    let drives = picture
        .drives
        .values()
        .filter_map(|drive| Some((&drive.name, untold(drive)?)));
    let volumes = picture
        .volumes
        .values()
        .filter(|volume| volume.health == Health::Unknown);
    let whys = drives.chain(volumes.map(|volume| (&volume.name, &volume.why)));
    whys.map(|(name, why)| {
        format!(
            "; {name}: cannot be told: {}",
            if why.is_empty() {
                "no reason is given"
            } else {
                why
            }
        )
    })
    .collect()
}

fn untold(drive: &Drive) -> Option<&String> {
    let why = if drive.health == Health::Unknown {
        Some(&drive.why)
    } else {
        drive.unasked.as_ref()
    };
    why.filter(|_| !drive.maintenance)
}

fn unknown(reason: &str, message: &str) -> Condition {
    Condition {
        status: Status::Unknown,
        reason: reason.to_owned(),
        message: bounded(message),
    }
}

fn bounded(text: &str) -> String {
    limits::message(&text.replace(char::is_control, " ")).into_owned()
}

#[cfg(test)]
mod tests;
