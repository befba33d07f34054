#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    diskvitals::fuzz::run(diskvitals::fuzz::lvm_reports, bytes)
});
