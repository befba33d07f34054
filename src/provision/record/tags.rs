//! A record in the tags of a logical volume. LVM stores tags with the volume, so a volume always
//! has its record.
//!
//! A tag has the characters `[A-Za-z0-9_+.\-/=!:&#]` and at most 1,024 bytes (lvm(8)): the JSON is
//! encoded as base64url, in numbered parts.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::record::{self, RecordError, VolumeRecord};

/// The tag of every logical volume of ours.
pub(crate) const VOLUME_TAG: &str = "diskvitals.volume";
const RECORD_TAG_PREFIX: &str = "diskvitals.record.";
/// Maximum number of base64 bytes in one tag.
const MAX_CHUNK_BYTES: usize = 960;

pub fn encode(record: &VolumeRecord) -> Result<Vec<String>, RecordError> {
    let coded = URL_SAFE_NO_PAD.encode(record::write(record)?);
    let pieces: Vec<&str> = (0..coded.len())
        .step_by(MAX_CHUNK_BYTES)
        .map(|at| &coded[at..coded.len().min(at + MAX_CHUNK_BYTES)])
        .collect();
    let count = pieces.len();
    let tags = pieces
        .into_iter()
        .enumerate()
        .map(|(number, piece)| format!("{RECORD_TAG_PREFIX}{}/{count}={piece}", number + 1));
    Ok(std::iter::once(VOLUME_TAG.to_owned()).chain(tags).collect())
}

/// The record's text; an error if the tags are incomplete.
pub fn decode(tags: &[String]) -> Result<Vec<u8>, RecordError> {
    let mut pieces: Vec<(usize, usize, &str)> = tags
        .iter()
        .filter_map(|tag| {
            let (place, piece) = tag.strip_prefix(RECORD_TAG_PREFIX)?.split_once('=')?;
            let (number, count) = place.split_once('/')?;
            Some((number.parse().ok()?, count.parse().ok()?, piece))
        })
        .collect();
    pieces.sort_unstable();
    let whole = !pieces.is_empty()
        && pieces
            .iter()
            .enumerate()
            .all(|(at, (number, count, _))| *number == at + 1 && *count == pieces.len());
    if !whole {
        return Err(RecordError::IncompleteTags);
    }
    let coded: String = pieces.into_iter().map(|(_, _, piece)| piece).collect();
    URL_SAFE_NO_PAD.decode(coded).map_err(RecordError::Base64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_record_of_any_length_survives_its_tags_in_any_order() {
        let mut record = record();
        record.mkfs_options = "-m 0 ".repeat(600);
        let mut tags = encode(&record).unwrap();
        assert!(tags.len() > 3);
        for tag in &tags {
            assert!(
                tag.len() <= 1024
                    && tag
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"_+.-/=!:&#".contains(&byte)),
                "{tag}"
            );
        }
        tags.reverse();
        assert_eq!(
            record::read::<VolumeRecord>(&record.handle, &decode(&tags).unwrap()).unwrap(),
            record
        );
        tags.remove(1);
        assert!(matches!(decode(&tags), Err(RecordError::IncompleteTags)));
    }
}
