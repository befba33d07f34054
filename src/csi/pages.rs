//! Pagination of lists. A token names the last entry of a page, so pages stay correct when entries
//! appear or disappear between calls.
//!
//! In: max_entries and starting_token of a request. Out: the entries of the page and the next
//! token. A token is opaque: version, list, key and a checksum, in base64.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use tonic::Status;

/// The version of the token format.
const VERSION: u8 = b'1';
/// A page ends when its entries exceed this size, even if the request permits more: callers written
/// in Go accept 4 MiB.
const MAX_PAGE_BYTES: usize = 2 << 20;
/// Longest accepted token, in bytes.
const MAX_TOKEN_LEN: usize = 16 << 10;

/// The list that a token belongs to. Other lists reject the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Volumes,
    Health,
}

impl ListKind {
    fn tag(self) -> u8 {
        match self {
            ListKind::Volumes => b'v',
            ListKind::Health => b'h',
        }
    }
}

/// One request for a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageRequest {
    list: ListKind,
    /// Maximum number of entries.
    max_entries: usize,
    /// The last entry of the previous page.
    after: Option<String>,
}

impl PageRequest {
    /// Parses a request. 0 entries means no limit. INVALID_ARGUMENT for a negative number, ABORTED
    /// for a token that this list did not create (CSI, ListVolumes).
    pub(crate) fn parse(
        list: ListKind,
        max_entries: i32,
        starting_token: &str,
    ) -> Result<PageRequest, Status> {
        let most = match usize::try_from(max_entries) {
            Err(_) => return Err(Status::invalid_argument("max_entries: is negative")),
            Ok(0) => usize::MAX,
            Ok(most) => most,
        };
        Ok(PageRequest { list, max_entries: most, after: decode_token(list, starting_token)? })
    }

    /// Returns the entries of this page and the token of the next one, which is empty on the last
    /// page. `entries` are sorted by their keys, which are not empty.
    pub(crate) fn take_page<M: Message>(
        &self,
        entries: impl IntoIterator<Item = (String, M)>,
    ) -> (Vec<M>, String) {
        let mut entries = entries
            .into_iter()
            .skip_while(|(key, _)| self.after.as_ref().is_some_and(|after| key <= after))
            .peekable();
        let (mut page, mut bytes) = (Vec::new(), 0);
        while let Some((key, entry)) = entries.next() {
            bytes += entry.encoded_len();
            page.push(entry);
            if page.len() >= self.max_entries || bytes >= MAX_PAGE_BYTES {
                let next = if entries.peek().is_some() {
                    encode_token(self.list, &key)
                } else {
                    String::new()
                };
                return (page, next);
            }
        }
        (page, String::new())
    }
}

fn encode_token(list: ListKind, key: &str) -> String {
    let mut bytes = vec![VERSION, list.tag()];
    bytes.extend_from_slice(key.as_bytes());
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The key in `token`; None for the empty token, which starts at the beginning.
fn decode_token(list: ListKind, token: &str) -> Result<Option<String>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let parse = || {
        let bytes = URL_SAFE_NO_PAD
            .decode(Some(token).filter(|token| token.len() <= MAX_TOKEN_LEN)?)
            .ok()?;
        let (text, sum) = bytes.split_last_chunk::<4>()?;
        let key = text.strip_prefix(&[VERSION, list.tag()])?;
        (*sum == checksum(text).to_be_bytes()).then(|| String::from_utf8(key.to_vec()).ok())?
    };
    parse().map(Some).ok_or_else(|| {
        Status::aborted(
            "starting_token: is not one that this list gave out; start again without one",
        )
    })
}

/// FNV-1a, 32 bits (draft-eastlake-fnv). It detects truncated and mistyped tokens; it does not
/// protect against forgery, and no protection is needed.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;
    use crate::wire;

    fn entry(key: &str) -> (String, wire::VolumeHealth) {
        (key.to_owned(), wire::VolumeHealth { volume_id: key.to_owned(), ..Default::default() })
    }

    proptest! {
        #[test]
        fn pages_joined_are_the_whole_list_for_any_size(ids in prop::collection::btree_set("\\PC{1,20}", 0..60), most in 0..70i32) {
            let (mut joined, mut token) = (Vec::new(), String::new());
            loop {
                let page = PageRequest::parse(ListKind::Volumes, most, &token).expect("ours");
                let (entries, next) = page.take_page(ids.iter().map(|id| entry(id)));
                prop_assert!(most == 0 || entries.len() <= usize::try_from(most).expect("positive"));
                joined.extend(entries.into_iter().map(|entry| entry.volume_id));
                token = next;
                if token.is_empty() { break }
            }
            prop_assert_eq!(joined, ids.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn a_token_is_good_for_its_own_list_only(text in "\\PC{1,128}") {
            let made = encode_token(ListKind::Volumes, &text);
            prop_assert_eq!(decode_token(ListKind::Volumes, &made).expect("ours"), Some(text));
            prop_assert_eq!(decode_token(ListKind::Health, &made).expect_err("another's").code(), Code::Aborted);
        }

        #[test]
        fn any_other_text_is_aborted_and_never_a_panic(text in "\\PC{1,40}") {
            prop_assert_eq!(decode_token(ListKind::Volumes, &text).expect_err("not ours").code(), Code::Aborted);
        }
    }

    #[test]
    fn a_negative_number_of_entries_is_the_callers_mistake() {
        let status = PageRequest::parse(ListKind::Health, -1, "").expect_err("negative");
        assert_eq!(
            (status.code(), status.message()),
            (Code::InvalidArgument, "max_entries: is negative")
        );
    }

    #[test]
    fn a_page_ends_before_it_is_too_large_for_callers() {
        let page = PageRequest::parse(ListKind::Health, 0, "").expect("right");
        let (entries, next) = page.take_page((0..5000).map(|n| entry(&format!("{n:01000}"))));
        assert!(entries.len() < 5000 && !next.is_empty());
        let more = PageRequest::parse(ListKind::Health, 0, &next)
            .expect("ours")
            .take_page((0..5000).map(|n| entry(&format!("{n:01000}"))));
        assert!(more.0[0].volume_id > entries[entries.len() - 1].volume_id);
    }
}
