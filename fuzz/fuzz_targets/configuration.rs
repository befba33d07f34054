#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    diskvitals_parser_laws::run(diskvitals_parser_laws::configuration, bytes)
});
