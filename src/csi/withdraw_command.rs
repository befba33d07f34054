//! `diskvitals-csi withdraw`: lets a running shim withdraw its health and waits until the kubelet
//! has completed a round.
//!
//! In: the shim's socket, a time limit. Out: the progress on standard output, and an error that
//! says what is missing.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::options::WithdrawOptions;
use crate::wire::withdrawal::withdrawal_client::WithdrawalClient;
use crate::wire::withdrawal::{WithdrawRequest, WithdrawResponse};

/// Delay between two queries of the progress.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for one answer of the shim, which answers from memory.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum WithdrawError {
    #[error("connecting to the shim")]
    Connect(#[source] tonic::transport::Error),
    #[error(
        "the socket belongs to no diskvitals-csi in mode driver or interposer, or to an older one"
    )]
    NotServed,
    #[error("withdrawing")]
    Call(#[source] Box<Status>),
    #[error(
        "the shim was restarted and reports health again: run the command again, or start it with --withdraw"
    )]
    Restarted,
    #[error(
        "health is withdrawn, but the kubelet has not completed a round within {} s: its health calls since: {volumes} volumes, {storage_calls} for the storage. Without any call it does not query health (feature gate CSIVolumeHealth, or another socket is registered), and keeps nothing new",
        limit.as_secs()
    )]
    NoRound { limit: Duration, volumes: u64, storage_calls: u64 },
}

pub(crate) async fn run(options: &WithdrawOptions) -> Result<(), WithdrawError> {
    let limit = Duration::from_secs(options.timeout);
    let endpoint = tonic::transport::Endpoint::from_shared(options.endpoint.to_string())
        .map_err(WithdrawError::Connect)?
        .connect_timeout(CALL_TIMEOUT)
        .timeout(CALL_TIMEOUT);
    let channel = endpoint.connect().await.map_err(WithdrawError::Connect)?;
    let mut client = WithdrawalClient::new(channel);
    let begun = withdraw(&mut client).await?;
    println!("Health is withdrawn since {}.", since(&begun));
    if options.no_wait {
        return Ok(());
    }
    println!("Waiting for a complete round of the kubelet (usually 2 to 3 minutes).");
    let waited = tokio::time::timeout(limit, wait_for_round(&mut client, &begun)).await;
    match waited {
        Ok(completed) => {
            let volumes = completed?.volumes;
            println!("The kubelet has completed a round; volumes queried: {volumes}.");
            Ok(())
        }
        Err(_) => {
            let WithdrawResponse { volumes, storage_calls, .. } = withdraw(&mut client).await?;
            Err(WithdrawError::NoRound { limit, volumes, storage_calls })
        }
    }
}

async fn wait_for_round(
    client: &mut WithdrawalClient<Channel>,
    begun: &WithdrawResponse,
) -> Result<WithdrawResponse, WithdrawError> {
    loop {
        let progress = withdraw(client).await?;
        if progress.since != begun.since {
            return Err(WithdrawError::Restarted);
        }
        if progress.round_completed {
            return Ok(progress);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn withdraw(
    client: &mut WithdrawalClient<Channel>,
) -> Result<WithdrawResponse, WithdrawError> {
    match client.withdraw(WithdrawRequest {}).await {
        Ok(progress) => Ok(progress.into_inner()),
        Err(status) if status.code() == Code::Unimplemented => Err(WithdrawError::NotServed),
        Err(status) => Err(WithdrawError::Call(Box::new(status))),
    }
}

/// The time of the withdrawal, to the second.
fn since(progress: &WithdrawResponse) -> String {
    let time = progress
        .since
        .and_then(|since| SystemTime::try_from(since).ok())
        .and_then(|since| Timestamp::try_from(since).ok());
    time.map_or_else(|| "an unknown time".to_owned(), |time| format!("{time:.0}"))
}
