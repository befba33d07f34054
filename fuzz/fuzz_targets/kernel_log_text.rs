//! A kernel log in any text form: none may make the reader panic, and how the bytes arrive may not
//! matter.
#![no_main]

use std::io::BufReader;

use diskvitals_analyze as analyze;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = analyze::kernel_log_from(bytes, "fuzz".to_owned()).map(|answer| answer.classes);
    let pieces = analyze::kernel_log_from(BufReader::with_capacity(7, bytes), "fuzz".to_owned())
        .map(|answer| answer.classes);
    assert_eq!(whole.ok(), pieces.ok());
});
