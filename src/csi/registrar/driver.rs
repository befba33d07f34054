//! What a driver calls itself: asked on its own socket, again and again, ever more slowly, until it
//! answers.
//!
//! In: the socket's path. Out: a name that is fit to be a part of a file's name. Each new trouble
//! is logged once, not each attempt.

use std::path::Path;
use std::time::Duration;

use tonic::Status;
use tonic::transport::Endpoint;

use crate::csi::wire::GetPluginInfoRequest;
use crate::csi::wire::identity_client::IdentityClient;
use crate::model::naming;

/// Before the second attempt; doubled for each further one. Short: drivers start beside their
/// registrars, and pods wait for both.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// To connect, and for the answer.
const CALL: Duration = Duration::from_secs(5);
/// Largest answer, in bytes: a name, a version and a few words.
const ANSWER: usize = 64 << 10;

/// The driver answers, but not with a name by which it can be registered. Asking again would not
/// help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it calls itself {name:?}: {why}")]
pub struct NotAName {
    /// At most [`SHOWN`] characters of it.
    name: String,
    why: String,
}

const SHOWN: usize = 100;

/// Why there is no answer yet.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("connecting")]
    Connect(#[source] tonic::transport::Error),
    #[error("calling GetPluginInfo")]
    Call(#[source] Box<Status>),
    #[error("no answer within {} s", CALL.as_secs())]
    TimedOut,
}

/// The name that the driver at `socket` gives itself. Waits as long as there is no answer.
pub async fn name(socket: &Path) -> Result<String, NotAName> {
    let mut told = None;
    let mut pause = FIRST_PAUSE;
    loop {
        let trouble = match tokio::time::timeout(CALL, ask(socket)).await {
            Ok(Ok(name)) => return checked(name),
            Ok(Err(trouble)) => trouble,
            Err(_) => Trouble::TimedOut,
        };
        let trouble = format!("{:#}", anyhow::Error::from(trouble));
        if told.as_ref() != Some(&trouble) {
            tracing::warn!(driver = %socket.display(), %trouble, "the driver does not answer: nothing to register yet; trying on");
            told = Some(trouble);
        }
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(LONGEST_PAUSE)
}

async fn ask(socket: &Path) -> Result<String, Trouble> {
    let endpoint =
        Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(Trouble::Connect)?;
    let channel = endpoint.connect().await.map_err(Trouble::Connect)?;
    let mut client = IdentityClient::new(channel).max_decoding_message_size(ANSWER);
    let answer = client
        .get_plugin_info(GetPluginInfoRequest {})
        .await
        .map_err(|status| Trouble::Call(Box::new(status)))?;
    Ok(answer.into_inner().name)
}

fn checked(name: String) -> Result<String, NotAName> {
    match naming::driver(&name) {
        Ok(()) => Ok(name),
        Err(why) => Err(NotAName {
            name: name.chars().take(SHOWN).collect(),
            why,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_file_name_is_refused() {
        assert_eq!(
            checked("csi.example.com".into()),
            Ok("csi.example.com".into())
        );
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
            assert!(checked(name.into()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_refusal_shows_the_name_but_not_all_of_an_endless_one() {
        let refusal = checked("../x\n".into())
            .expect_err("not a name")
            .to_string();
        assert!(
            refusal.starts_with(r#"it calls itself "../x\n": a driver's name is made of"#),
            "{refusal}"
        );
        assert!(
            checked("/".repeat(60_000))
                .expect_err("not a name")
                .to_string()
                .len()
                < 300
        );
    }

    #[test]
    fn the_pauses_double_up_to_eight_seconds() {
        let pauses: Vec<u128> =
            std::iter::successors(Some(FIRST_PAUSE), |pause| Some(longer(*pause)))
                .take(8)
                .map(|pause| pause.as_millis())
                .collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_driver_is_waited_for() {
        let dir = tempfile::tempdir().expect("dir");
        let ended =
            tokio::time::timeout(Duration::from_secs(600), name(&dir.path().join("csi.sock")))
                .await;
        assert!(ended.is_err());
    }
}
