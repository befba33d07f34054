//! Hashes that are stored, sent to others or compared between runs: names, ids, shares of a time.
//! FNV-1a (draft-eastlake-fnv) is stable over releases; the standard library's hasher promises no
//! stability.
//!
//! In: bytes. Out: a number of 64 or 128 bits, or text. Collisions of FNV-1a are easy to find: what
//! identifies something and is made of text that others choose has SHA-256.

use ring::digest::{SHA256, digest};

/// 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().map(|it| format!("{it:02x}")).collect()
}

/// 32 hexadecimal digits: of SHA-256 the first half.
pub fn sha256_short(bytes: &[u8]) -> String {
    let mut text = sha256(bytes);
    text.truncate(32);
    text
}

pub fn fnv1a_64(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

pub fn fnv1a_128(bytes: impl IntoIterator<Item = u8>) -> u128 {
    bytes.into_iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_fips_180_matches() {
        let whole = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), whole);
        assert_eq!(sha256_short(b"abc"), whole[..32]);
    }

    /// Both have the FNV-1a hash 0 (Landon Curt Noll's list), and so have all texts that go on alike.
    #[test]
    fn texts_that_were_chosen_to_collide_do_not() {
        let [one, other] = ["!0IC=VloaY/disk", "QvXtM>@Fp%/disk"];
        assert_eq!(fnv1a_64(one.bytes()), fnv1a_64(other.bytes()));
        assert_ne!(sha256_short(one.as_bytes()), sha256_short(other.as_bytes()));
    }

    #[test]
    fn published_test_vectors_match() {
        for (text, short, long) in [
            ("", 0xcbf2_9ce4_8422_2325_u64, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128),
            ("a", 0xaf63_dc4c_8601_ec8c, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964),
            ("foobar", 0x8594_4171_f739_67e8, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18),
        ] {
            assert_eq!((fnv1a_64(text.bytes()), fnv1a_128(text.bytes())), (short, long), "{text}");
        }
    }
}
