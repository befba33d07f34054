use super::*;

#[test]
fn memory_that_was_not_measured_is_absent_also_in_older_records() {
    let run =
        Run::failed(Mode::Live, Timestamp::UNIX_EPOCH, Termination::Exited(8), "x".to_owned());
    let mut record = serde_json::to_value(&run).unwrap();
    assert_eq!(record.get("peak_memory"), None);
    for (stored, read) in [(0, None), (4096, Some(4096))] {
        record["peak_memory"] = stored.into();
        let run: Run = serde_json::from_value(record.clone()).unwrap();
        assert_eq!(run.peak_memory, read);
    }
}
