//! The name of a driver: queried on its socket with GetPluginInfo until the driver answers.
//!
//! In: the path of the socket. Out: a name that is safe as part of a file name. Each new error is
//! logged once, not each attempt.

use std::path::Path;
use std::time::Duration;

use tonic::Status;
use tonic::transport::Endpoint;

use crate::wire::GetPluginInfoRequest;
use crate::wire::identity_client::IdentityClient;
use diskvitals_text::backoff::Backoff;
use diskvitals_text::causes::with_causes;
use diskvitals_text::naming;

/// The delay between two attempts. It is short, because a driver starts together with its
/// registrar, and pods wait for both.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(8));
/// Time limit for the connection and the answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer, in bytes: a name, a version and a short manifest.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The driver answers, but its name cannot be registered. Another query would not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it calls itself {name:?}: {why}")]
pub(crate) struct InvalidDriverName {
    /// The name, truncated to [`MAX_SHOWN_CHARS`] characters.
    name: String,
    why: naming::NameError,
}

const MAX_SHOWN_CHARS: usize = 100;

/// The reason why there is no answer yet.
#[derive(Debug, thiserror::Error)]
enum QueryError {
    #[error("connecting")]
    Connect(#[source] tonic::transport::Error),
    #[error("calling GetPluginInfo")]
    Call(#[source] Box<Status>),
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut,
}

/// The name that the driver at `socket` reports. Waits until there is an answer.
pub(crate) async fn wait_for_name(socket: &Path) -> Result<String, InvalidDriverName> {
    let mut last_logged = None;
    let mut backoff = BACKOFF;
    loop {
        let error = match tokio::time::timeout(CALL_TIMEOUT, query_name(socket)).await {
            Ok(Ok(name)) => return validate_name(name),
            Ok(Err(error)) => error,
            Err(_) => QueryError::TimedOut,
        };
        let error = with_causes(&error);
        if last_logged.as_ref() != Some(&error) {
            tracing::warn!(driver = %socket.display(), %error, "the driver does not answer, so it cannot be registered yet; retrying");
            last_logged = Some(error);
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

async fn query_name(socket: &Path) -> Result<String, QueryError> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
        .map_err(QueryError::Connect)?;
    let channel = endpoint.connect().await.map_err(QueryError::Connect)?;
    let mut client = IdentityClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    let answer = client
        .get_plugin_info(GetPluginInfoRequest {})
        .await
        .map_err(|status| QueryError::Call(Box::new(status)))?;
    Ok(answer.into_inner().name)
}

fn validate_name(name: String) -> Result<String, InvalidDriverName> {
    match naming::validate_driver(&name) {
        Ok(()) => Ok(name),
        Err(why) => {
            Err(InvalidDriverName { name: name.chars().take(MAX_SHOWN_CHARS).collect(), why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_file_name_is_refused() {
        assert_eq!(validate_name("csi.example.com".into()), Ok("csi.example.com".into()));
        for name in [
            "",
            ".",
            "..",
            "../../etc/cron.d/x",
            "a/b",
            "a\0b",
            "-x",
            "x-",
            "a b",
            "ä.example",
            &"a".repeat(64),
        ] {
            assert!(validate_name(name.into()).is_err(), "{name}");
        }
    }

    #[test]
    fn an_invalid_name_is_shown_truncated() {
        let refusal = validate_name("../x\n".into()).expect_err("not a name").to_string();
        assert!(
            refusal.starts_with(r#"it calls itself "../x\n": a driver's name is made of"#),
            "{refusal}"
        );
        assert!(validate_name("/".repeat(60_000)).expect_err("not a name").to_string().len() < 300);
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_driver_is_waited_for() {
        let dir = tempfile::tempdir().expect("dir");
        let ended = tokio::time::timeout(
            Duration::from_secs(600),
            wait_for_name(&dir.path().join("csi.sock")),
        )
        .await;
        assert!(ended.is_err());
    }
}
