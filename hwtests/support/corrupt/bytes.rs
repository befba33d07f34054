//! Bytes of an image, numbers in them, and the checksum that all three filesystems use (CRC-32C,
//! RFC 3720 appendix B.4).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::random::Random;

pub struct Image {
    file: File,
}

impl Image {
    pub fn open(path: &Path) -> Image {
        Image {
            file: File::options()
                .read(true)
                .write(true)
                .open(path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        }
    }

    pub fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, at)
            .unwrap_or_else(|error| panic!("reading {length} bytes at {at}: {error}"));
        bytes
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.file
            .write_all_at(bytes, at)
            .unwrap_or_else(|error| panic!("writing {} bytes at {at}: {error}", bytes.len()));
    }

    pub fn zero(&self, at: u64, length: u64) {
        self.write(at, &vec![0; length as usize]);
    }

    /// Flips one bit of a byte between `from` and `to` of the structure that begins at `at`.
    /// Returns which byte.
    pub fn flip(&self, at: u64, from: u64, to: u64, random: &mut Random) -> u64 {
        let byte = random.between(from, to - 1);
        let mut bytes = self.read(at + byte, 1);
        bytes[0] ^= 1 << random.below(8);
        self.write(at + byte, &bytes);
        byte
    }
}

pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// The kernel's crc32c(): neither begins nor ends with an inversion.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(seed, |sum, byte| TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8))
}
