//! Random bytes from the kernel, for names that must not be guessed.

use std::io::Read;

/// 128 bits from /dev/urandom (random(4)): it never blocks on a machine that has started.
pub fn bits() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
