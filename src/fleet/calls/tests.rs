use super::*;

#[tokio::test]
async fn a_result_is_taken_once_and_none_of_a_call_from_before_a_reset() {
    let mut calls = Calls::default();
    calls.start(async { 1 }).await;
    let call = calls.start(async { 2 });
    assert_eq!((calls.take(), calls.take(), calls.is_busy()), (Some(1), None, true));
    calls = Calls::default();
    call.await;
    assert_eq!((calls.take(), calls.is_busy()), (None, false));
}
