//! Pages of lists. A token names the last entry of the previous page, so pages stay correct when
//! entries are added or removed in between.
//!
//! In: page_size and page_token of a request. Out: the entry to continue after, and the next token.
//! A token is opaque: list, version, key and a checksum, in hex.

use std::ops::Bound;

use prost::Message;
use tonic::Status;

use crate::api::finding_order::FindingRank;
use crate::api::status::{MAX_QUERY, bounded, invalid};
use diskvitals_model::cause::CauseRank;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;
/// A page ends early when its entries exceed this many bytes: unread data waits in memory, and
/// clients refuse more than 4 MiB by default.
const MAX_BYTES: usize = 256 << 10;
/// Changes when the form of tokens changes.
const VERSION: char = '2';

/// The list that a token belongs to. A token of one list is invalid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Drives,
    Volumes,
    Findings,
    FindingsAndCleared,
    Causes,
    Checks,
    ProvisionedVolumes,
    Attachments,
}

impl List {
    fn token_prefix(self) -> char {
        match self {
            List::Drives => 'd',
            List::Volumes => 'v',
            List::Findings => 'f',
            List::FindingsAndCleared => 'c',
            List::Causes => 'u',
            List::Checks => 'k',
            List::ProvisionedVolumes => 'p',
            List::Attachments => 'a',
        }
    }
}

/// Number of entries of a page.
pub(crate) fn size(page_size: i32) -> Result<usize, Status> {
    match usize::try_from(page_size) {
        Err(_) => Err(invalid("page_size", "is negative")),
        Ok(0) => Ok(DEFAULT_SIZE),
        Ok(size) => Ok(size.min(MAX_SIZE)),
    }
}

fn token(list: List, key: &str) -> String {
    let text = format!("{VERSION}{}{key}", list.token_prefix());
    let sum = checksum(text.as_bytes()).to_be_bytes();
    let bytes = text.bytes().chain(sum);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// The key from which `token` was made; None for the empty token, which starts at the beginning.
pub(crate) fn key(list: List, token: &str) -> Result<Option<String>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    bounded("page_token", token, MAX_QUERY)?;
    let wrong = || invalid("page_token", "is not one that this list gave out");
    let bytes = unhex(token).ok_or_else(wrong)?;
    let (text, sum) = bytes.split_at_checked(bytes.len().saturating_sub(2)).ok_or_else(wrong)?;
    if sum != checksum(text).to_be_bytes() {
        return Err(wrong());
    }
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    text.strip_prefix(VERSION)
        .and_then(|text| text.strip_prefix(list.token_prefix()))
        .map(|key| Some(key.to_owned()))
        .ok_or_else(wrong)
}

fn unhex(token: &str) -> Option<Vec<u8>> {
    if !token.len().is_multiple_of(2) || !token.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..token.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok())
        .collect()
}

/// Fletcher-16 (RFC 1146): detects cut and mistyped tokens. Forged tokens do no harm.
fn checksum(bytes: &[u8]) -> u16 {
    let (low, high) = bytes.iter().fold((0u16, 0u16), |(low, high), byte| {
        let low = (low + u16::from(*byte)) % 255;
        (low, (high + low) % 255)
    });
    high << 8 | low
}

/// The range of a map after `key`.
pub(crate) fn range_after<K>(key: Option<K>) -> (Bound<K>, Bound<K>) {
    (key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

/// Takes entries until the page is full, and the token of the next page: empty on the last one.
pub(crate) fn fill_page<T, M: Message>(
    list: List,
    entries: impl Iterator<Item = T>,
    size: usize,
    convert: impl Fn(&T) -> M,
    key: impl Fn(&T) -> String,
) -> (Vec<M>, String) {
    let mut entries = entries.peekable();
    let mut page = Vec::new();
    let mut bytes = 0;
    while let Some(entry) = entries.next() {
        let message = convert(&entry);
        bytes += message.encoded_len();
        page.push(message);
        if page.len() >= size || bytes >= MAX_BYTES {
            let next = entries.peek().map(|_| token(list, &key(&entry)));
            return (page, next.unwrap_or_default());
        }
    }
    (page, String::new())
}

pub(crate) fn rank_key(rank: &FindingRank) -> String {
    format!(
        "{} {} {} {} {} {}",
        rank.group, rank.severity, rank.layer, rank.status, rank.since, rank.id
    )
}

pub(crate) fn rank_of(key: &str) -> Result<FindingRank, Status> {
    let parse = || {
        let mut parts = key.splitn(6, ' ');
        Some(FindingRank {
            group: parts.next()?.parse().ok()?,
            severity: parts.next()?.parse().ok()?,
            layer: parts.next()?.parse().ok()?,
            status: parts.next()?.parse().ok()?,
            since: parts.next()?.parse().ok()?,
            id: parts.next()?.to_owned(),
        })
    };
    parse().ok_or_else(|| invalid("page_token", "is not one that this list gave out"))
}

/// The name comes last: it may contain spaces.
pub(crate) fn cause_key(rank: &CauseRank) -> String {
    let CauseRank { group, severity, kind, name, id } = rank;
    format!("{group} {severity} {kind} {id} {name}")
}

pub(crate) fn cause_rank_of(key: &str) -> Result<CauseRank, Status> {
    let parse = || {
        let mut parts = key.splitn(5, ' ');
        Some(CauseRank {
            group: parts.next()?.parse().ok()?,
            severity: parts.next()?.parse().ok()?,
            kind: parts.next()?.parse().ok()?,
            id: parts.next()?.to_owned(),
            name: parts.next()?.to_owned(),
        })
    };
    parse().ok_or_else(|| invalid("page_token", "is not one that this list gave out"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_gives_its_key_back_to_its_own_list_only(text in ".{0,200}") {
            let made = token(List::Drives, &text);
            prop_assert_eq!(key(List::Drives, &made).unwrap(), Some(text));
            prop_assert!(key(List::Volumes, &made).is_err());
        }

        #[test]
        fn pages_joined_are_the_whole_list_for_any_size(ids in proptest::collection::btree_set(".{0,20}", 0..60), size in 1..70usize) {
            let (mut joined, mut after_id) = (Vec::new(), None);
            loop {
                let entries = ids.range(range_after::<String>(after_id));
                let message = |id: &&String| diskvitals_wire::Subject { id: (*id).clone(), ..Default::default() };
                let (page, next) = fill_page(List::Drives, entries, size, message, |id| (*id).clone());
                prop_assert!(page.len() <= size);
                joined.extend(page.into_iter().map(|subject| subject.id));
                if next.is_empty() {
                    break;
                }
                after_id = key(List::Drives, &next).unwrap();
            }
            prop_assert_eq!(joined, ids.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn the_rank_of_a_finding_survives_its_token(group in 0..3u8, severity: u8, layer: u8, status: u8, since: i64, id in "[0-9a-f]{12}") {
            let rank = FindingRank { group, severity, layer, status, since: i128::from(since), id };
            prop_assert_eq!(rank_of(&rank_key(&rank)).unwrap(), rank);
        }

        #[test]
        fn the_rank_of_a_cause_survives_its_token(group in 0..2u8, severity: u8, kind in 0..5u8, name in ".{0,64}", id in "drive:[0-9a-f.]{12}") {
            let rank = CauseRank { group, severity, kind, name, id };
            let made = token(List::Causes, &cause_key(&rank));
            prop_assert_eq!(cause_rank_of(&key(List::Causes, &made).unwrap().unwrap()).unwrap(), rank);
        }

        #[test]
        fn any_text_is_a_token_or_an_error_and_never_a_panic(text in any::<String>()) {
            if let Err(status) = key(List::Findings, &text) {
                prop_assert_eq!(status.code(), tonic::Code::InvalidArgument);
                prop_assert!(status.message().starts_with("page_token: "));
            }
        }
    }

    #[test]
    fn a_negative_size_is_an_error_and_a_large_one_is_cut() {
        assert_eq!(size(-1).unwrap_err().message(), "page_size: is negative");
        assert_eq!(size(0).unwrap(), DEFAULT_SIZE);
        assert_eq!(size(i32::MAX).unwrap(), MAX_SIZE);
    }
}
