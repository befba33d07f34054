//! Hashes that are stored, sent to others or compared between runs: names, ids, shares of a time.
//! FNV-1a (draft-eastlake-fnv) is stable over releases; the standard library's hasher promises no
//! stability.
//!
//! In: bytes. Out: a number of 64 or 128 bits. A seed and input from attackers do not belong here:
//! collisions are easy to find.

pub(crate) fn fnv1a_64(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

pub(crate) fn fnv1a_128(bytes: impl IntoIterator<Item = u8>) -> u128 {
    bytes
        .into_iter()
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_test_vectors_match() {
        for (text, short, long) in [
            (
                "",
                0xcbf2_9ce4_8422_2325_u64,
                0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
            ),
            (
                "a",
                0xaf63_dc4c_8601_ec8c,
                0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964,
            ),
            (
                "foobar",
                0x8594_4171_f739_67e8,
                0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18,
            ),
        ] {
            assert_eq!(
                (fnv1a_64(text.bytes()), fnv1a_128(text.bytes())),
                (short, long),
                "{text}"
            );
        }
    }
}
