//! smartctl's output as it is kept for support: compressed, and bounded.
//!
//! In: the output of one run. Out: `SmartOutput`. Does not interpret the output.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use diskvitals_host::clock::now;
use diskvitals_host::exec::Output;
use diskvitals_smart::SmartOutput;

/// A full output of a drive with many logs takes about 15 KiB.
const MAX_GZIP_BYTES: usize = 64 << 10;

/// None if smartctl printed nothing.
pub fn keep(output: &Output, complete: bool, usable: bool) -> Option<SmartOutput> {
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let gzip = match encoder.write_all(&output.stdout).and_then(|()| encoder.finish()) {
        Ok(gzip) if gzip.len() <= MAX_GZIP_BYTES => Ok(gzip.into_boxed_slice()),
        Ok(gzip) => Err(format!(
            "its output has {} bytes, compressed: more than the {} KiB that are kept",
            gzip.len(),
            MAX_GZIP_BYTES >> 10
        )),
        Err(error) => Err(format!("compressing its output: {error}")),
    };
    Some(SmartOutput {
        at: now(),
        // wait(2): the exit status is the second byte.
        exit_status: output.status >> 8 & 0xff,
        complete,
        usable,
        size: output.stdout.len() as u64,
        gzip,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn output(stdout: Vec<u8>) -> Output {
        Output { status: 4 << 8, stdout, stderr: Vec::new(), truncated: false }
    }

    #[test]
    fn an_output_is_kept_byte_for_byte_with_its_exit_status() {
        let kept = keep(&output(b"{\"smartctl\": 1}\n".to_vec()), true, true).expect("kept");
        assert_eq!((kept.exit_status, kept.size), (4, 16));
        let gzip = kept.gzip.expect("compressed");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&gzip[..]).read_to_string(&mut text).expect("gzip");
        assert_eq!(text, "{\"smartctl\": 1}\n");
    }

    #[test]
    fn an_output_that_does_not_compress_enough_is_left_out_with_the_reason() {
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        let kept = keep(&output(noise.take(200_000).collect()), true, false).expect("an entry");
        assert_eq!(kept.size, 200_000);
        assert!(kept.gzip.expect_err("too large").contains("64 KiB"));
        assert_eq!(keep(&output(b" \n".to_vec()), true, true), None);
    }

    #[test]
    fn a_partial_output_replaces_no_complete_one_unless_it_cannot_be_interpreted() {
        let of = |complete, usable| keep(&output(b"{}".to_vec()), complete, usable).expect("kept");
        for (kept, newer, replaces) in [
            ((true, true), (true, true), true),
            ((true, true), (false, true), false),
            ((true, true), (false, false), true),
            ((false, true), (false, true), true),
            ((false, false), (false, true), true),
            ((true, false), (false, true), true),
        ] {
            let (kept, newer) = (of(kept.0, kept.1), of(newer.0, newer.1));
            assert_eq!(newer.replaces(&kept), replaces, "{newer:?} after {kept:?}");
        }
    }
}
