//! What is new between two pictures of the node: transitions, each for the objects that it
//! concerns.
//!
//! In: the picture before and the one after. Out: news. Pure. News that is found again by another
//! process, or after a restart, has the same key, so that nothing is told twice.

use jiff::{SignedDuration, Timestamp};

use crate::csi::report::picture::{Claimed, Health, Level, Picture, Subject, Trouble};
use crate::model::attach::PodOf;

/// At the first sight of a node, what began before that is taken as told: events that were told
/// live for an hour (kube-apiserver --event-ttl), and make telling them again a conflict; older
/// ones have gone, and would be told twice.
pub const FRESH: SignedDuration = SignedDuration::from_mins(45);

/// Of a thing whose health has become unknown, and known again.
pub const UNKNOWN: &str = "HealthUnknown";
pub const KNOWN: &str = "HealthKnown";

/// Which object an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Node,
    Pod(PodOf),
    Claim(Claimed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Raised,
    Worsened,
    Eased,
    Cleared,
    Lost,
    Found,
}

impl Kind {
    /// An event's action.
    pub fn action(self) -> &'static str {
        match self {
            Kind::Raised => "Raised",
            Kind::Worsened => "Worsened",
            Kind::Eased => "Eased",
            Kind::Cleared => "Cleared",
            Kind::Lost => "Lost",
            Kind::Found => "Found",
        }
    }

    pub fn is_warning(self) -> bool {
        match self {
            Kind::Raised | Kind::Worsened | Kind::Eased | Kind::Lost => true,
            Kind::Cleared | Kind::Found => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// One transition of one thing.
    pub key: String,
    pub about: About,
    pub kind: Kind,
    /// Of the finding; [`UNKNOWN`] or [`KNOWN`].
    pub reason: String,
    /// Any length.
    pub note: String,
    pub at: Timestamp,
}

/// `before`: None at the first sight.
pub fn news(before: Option<&Picture>, after: &Picture, now: Timestamp) -> Vec<News> {
    let teller = Teller { before, after, now };
    let mut news = Vec::new();
    // What is over before what is there: of what has come again meanwhile, that is the last word.
    for (id, trouble) in &after.over {
        teller.over(id, trouble, &mut news);
    }
    if let Some(before) = before {
        for (id, trouble) in before
            .troubles
            .iter()
            .filter(|(id, trouble)| fate(before, after, id, trouble) == Fate::Over)
        {
            teller.over_unrecorded(id, trouble, &mut news);
        }
    }
    for (id, trouble) in &after.troubles {
        teller.active(id, trouble, &mut news);
    }
    if let Some(before) = before {
        teller.health(before, &mut news);
    }
    // The node first: where there is too much to be told at once, it says most in least.
    news.sort_by_key(|news| news.about != About::Node);
    news
}

/// What is to be the picture before of the next news: the one after, with what has gone from it and
/// is not known to be over.
pub fn told(before: &Picture, after: &Picture) -> Picture {
    let mut told = after.clone();
    let open = before
        .troubles
        .iter()
        .filter(|(id, trouble)| fate(before, after, id, trouble) == Fate::Open);
    told.troubles
        .extend(open.map(|(id, trouble)| (id.clone(), trouble.clone())));
    for (id, drive) in &mut told.drives {
        drive.answered |= before.drives.get(id).is_some_and(|old| old.answered);
    }
    told
}

/// What has become of a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is there, under whatever id, its end is on record, or there is nothing left that it could
    /// be about.
    Settled,
    /// It has gone without a record, and what it was about is known to be well. So states end, and
    /// findings where the daemon has lost its history.
    Over,
    /// It has gone without a record, and nothing says that it is over.
    Open,
}

fn fate(before: &Picture, after: &Picture, id: &str, trouble: &Trouble) -> Fate {
    let settled = after.troubles.contains_key(id)
        || after.over.contains_key(id)
        || after.troubles.values().any(|other| is_same(trouble, other))
        || has_ended(before, after, trouble);
    if settled || trouble.level == Level::Info {
        return Fate::Settled;
    }
    // A drive that has said something of itself, and a daemon that has not asked it since: the
    // drive may well be as it was.
    let is_heard = |id: &String| {
        let answered =
            |picture: &Picture| picture.drives.get(id).is_some_and(|drive| drive.answered);
        answered(after) || !answered(before)
    };
    let over = match &trouble.about {
        Subject::Drive(id) => after
            .drives
            .get(id)
            .map(|drive| drive.health == Health::Good && is_heard(id)),
        Subject::Volume(id) => after.volumes.get(id).map(|volume| match trouble.since {
            Some(_) => volume.health == Health::Good && volume.drives.iter().all(is_heard),
            None => {
                volume.health != Health::Unknown && volume.state.as_ref() != Some(&trouble.reason)
            }
        }),
        // Of those nothing tells how they are.
        Subject::Device(_) => None,
    };
    match over {
        None => Fate::Settled,
        Some(true) => Fate::Over,
        Some(false) => Fate::Open,
    }
}

/// A daemon that has lost its history, or does not have it yet, gives the same trouble another id.
fn is_same(one: &Trouble, other: &Trouble) -> bool {
    (&one.about, &one.reason) == (&other.about, &other.reason)
}

/// By a record that was not there before, under whatever id.
fn has_ended(before: &Picture, after: &Picture, trouble: &Trouble) -> bool {
    after
        .over
        .iter()
        .any(|(id, other)| is_same(trouble, other) && !before.over.contains_key(id))
}

struct Teller<'a> {
    before: Option<&'a Picture>,
    after: &'a Picture,
    now: Timestamp,
}

impl Teller<'_> {
    fn active(&self, id: &str, trouble: &Trouble, news: &mut Vec<News>) {
        let kind = match self.before.map(|before| {
            before
                .troubles
                .get(id)
                .or_else(|| self.by_another_id(before, trouble))
        }) {
            // First sight.
            None if trouble.level > Level::Info
                && trouble.since.is_some_and(|since| self.is_fresh(since)) =>
            {
                Kind::Raised
            }
            None => return,
            Some(None) if trouble.level > Level::Info => Kind::Raised,
            Some(None) => return,
            Some(Some(old)) if (old.level, old.status) == (trouble.level, trouble.status) => return,
            Some(Some(old)) if old.level == Level::Info && trouble.level > Level::Info => {
                Kind::Raised
            }
            Some(Some(old)) if (old.level, trouble.level) == (Level::Info, Level::Info) => return,
            Some(Some(old))
                if trouble.level > old.level
                    || (trouble.level == old.level && trouble.status > old.status) =>
            {
                Kind::Worsened
            }
            Some(Some(_)) => Kind::Eased,
        };
        let words = match kind {
            Kind::Worsened => "worse than before: ",
            Kind::Eased => "less bad than before: ",
            _ => "",
        };
        let since = match trouble.since {
            Some(since) if self.now.duration_since(since) >= SignedDuration::from_mins(1) => {
                format!(" (since {since:.0})")
            }
            _ => String::new(),
        };
        let note = format!(
            "{}: {words}{}{since}",
            self.name(&trouble.about),
            trouble.message
        );
        self.tell(
            self.key(id, trouble),
            &trouble.about,
            kind,
            &trouble.reason,
            &note,
            news,
        );
    }

    fn by_another_id<'a>(&self, before: &'a Picture, trouble: &Trouble) -> Option<&'a Trouble> {
        if has_ended(before, self.after, trouble) {
            return None;
        }
        let left = |id: &String| {
            !self.after.troubles.contains_key(id) && !self.after.over.contains_key(id)
        };
        before
            .troubles
            .iter()
            .find(|(id, old)| is_same(old, trouble) && left(id))
            .map(|(_, old)| old)
    }

    fn over(&self, id: &str, trouble: &Trouble, news: &mut Vec<News>) {
        let Some(cleared) = &trouble.cleared else {
            return;
        };
        let told = match self.before {
            None => !self.is_fresh(cleared.time),
            Some(before) => before.over.contains_key(id),
        };
        // What came and went between two looks is told by its end.
        if told || trouble.level == Level::Info {
            return;
        }
        let note = format!(
            "{}: over, {}. It was: {}",
            self.name(&trouble.about),
            cleared.why,
            trouble.message
        );
        self.tell(
            format!("{id} cleared"),
            &trouble.about,
            Kind::Cleared,
            &trouble.reason,
            &note,
            news,
        );
    }

    fn over_unrecorded(&self, id: &str, trouble: &Trouble, news: &mut Vec<News>) {
        let note = format!(
            "{}: over. It was: {}",
            self.name(&trouble.about),
            trouble.message
        );
        let key = match trouble.since {
            Some(_) => format!("{id} cleared"),
            // The next time it has the same id.
            None => format!("{id} cleared {}", self.now),
        };
        self.tell(
            key,
            &trouble.about,
            Kind::Cleared,
            &trouble.reason,
            &note,
            news,
        );
    }

    fn health(&self, before: &Picture, news: &mut Vec<News>) {
        let drives = self.after.drives.iter().filter_map(|(id, drive)| {
            let old = before.drives.get(id)?;
            Some((
                Subject::Drive(id.clone()),
                old.health,
                drive.health,
                &drive.why,
            ))
        });
        let volumes = self.after.volumes.iter().filter_map(|(id, volume)| {
            let old = before.volumes.get(id)?;
            Some((
                Subject::Volume(id.clone()),
                old.health,
                volume.health,
                &volume.why,
            ))
        });
        for (subject, old, new, why) in drives.chain(volumes) {
            let name = self.name(&subject);
            let (kind, reason, note) = match (old, new) {
                (Health::Unknown, Health::Unknown) => continue,
                (_, Health::Unknown) => (
                    Kind::Lost,
                    UNKNOWN,
                    format!("{name}: how it is cannot be told: {why}"),
                ),
                // Otherwise the finding says it.
                (Health::Unknown, Health::Good) => (
                    Kind::Found,
                    KNOWN,
                    format!("{name}: how it is can be told again, and nothing is found against it"),
                ),
                _ => continue,
            };
            self.tell(
                format!("{subject:?} {} {}", kind.action(), self.now),
                &subject,
                kind,
                reason,
                &note,
                news,
            );
        }
    }

    fn is_fresh(&self, time: Timestamp) -> bool {
        self.now.duration_since(time) <= FRESH
    }

    /// The same for who sees the same transition: a finding's count grows when it gets worse, and
    /// not when it eases.
    fn key(&self, id: &str, trouble: &Trouble) -> String {
        match trouble.since {
            Some(_) => format!(
                "{id} {} {:?} {}",
                trouble.count, trouble.level, trouble.status
            ),
            None => format!("{id} {:?} {} {}", trouble.level, trouble.status, self.now),
        }
    }

    /// Of what has gone, as it was called.
    fn name<'a>(&'a self, subject: &'a Subject) -> &'a str {
        let known = match subject {
            Subject::Drive(id) => self.after.drives.contains_key(id),
            Subject::Volume(id) => self.after.volumes.contains_key(id),
            Subject::Device(_) => true,
        };
        match self.before {
            Some(before) if !known => before.name(subject),
            _ => self.after.name(subject),
        }
    }

    /// To who uses a volume; of what nobody uses, to the node.
    fn tell(
        &self,
        key: String,
        subject: &Subject,
        kind: Kind,
        reason: &str,
        note: &str,
        news: &mut Vec<News>,
    ) {
        let volume = match subject {
            Subject::Volume(id) => self
                .after
                .volumes
                .get(id)
                .or_else(|| self.before?.volumes.get(id)),
            Subject::Drive(_) | Subject::Device(_) => None,
        };
        let pods = volume
            .into_iter()
            .flat_map(|volume| &volume.pods)
            .cloned()
            .map(About::Pod);
        let claims = volume
            .into_iter()
            .flat_map(|volume| &volume.claimed)
            .cloned()
            .map(About::Claim);
        let mut abouts: Vec<About> = pods.chain(claims).collect();
        if !abouts.iter().any(|about| matches!(about, About::Pod(_))) {
            abouts.insert(0, About::Node);
        }
        let one = |about| News {
            key: key.clone(),
            about,
            kind,
            reason: reason.to_owned(),
            note: note.to_owned(),
            at: self.now,
        };
        news.extend(abouts.into_iter().map(one));
    }
}

#[cfg(test)]
pub(super) mod tests;
