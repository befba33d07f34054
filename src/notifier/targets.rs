//! Where notifications go: one module per type of target. Each makes one attempt and returns the
//! answer; when to try again is decided by `delivery`.

pub(crate) mod exec;
pub(crate) mod heartbeat;
pub(crate) mod http;
pub(crate) mod mail;
pub(crate) mod smtp;
pub(crate) mod tls;
pub(crate) mod webhook;

use std::time::Duration;

use crate::message::{Kind, Level, Notification};
use crate::outgoing::Outgoing;
use crate::targets::exec::ExecTarget;
use crate::targets::heartbeat::HeartbeatTarget;
use crate::targets::smtp::SmtpTarget;
use crate::targets::webhook::WebhookTarget;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub name: String,
    /// Less severe notifications do not go here.
    pub min_severity: Level,
    pub digest: bool,
    /// For one attempt.
    pub timeout: Duration,
    pub kind: TargetKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TargetKind {
    Smtp(SmtpTarget),
    Webhook(WebhookTarget),
    Exec(ExecTarget),
    Heartbeat(HeartbeatTarget),
}

/// Why an attempt failed, escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeliveryError {
    /// The target accepts nothing now: the next attempt, with any message, waits.
    #[error("{why}")]
    Unavailable {
        why: String,
        /// The delay that the server requests.
        retry_after: Option<Duration>,
    },
    /// The target does not accept this message; another one may do.
    #[error("{0}")]
    Refused(String),
}

impl DeliveryError {
    pub(crate) fn unavailable(why: impl Into<String>) -> DeliveryError {
        DeliveryError::Unavailable { why: crate::message::clean(&why.into()), retry_after: None }
    }

    pub(crate) fn refused(why: impl Into<String>) -> DeliveryError {
        DeliveryError::Refused(crate::message::clean(&why.into()))
    }
}

impl Target {
    /// Whether a notification goes to this target at all.
    pub(crate) fn wants(&self, notification: &Notification) -> bool {
        let queued = !matches!(self.kind, TargetKind::Heartbeat(_));
        queued
            && match notification.kind {
                Kind::Digest => self.digest,
                Kind::Test | Kind::DaemonSilent | Kind::DaemonBack => true,
                Kind::Changes | Kind::Reminder | Kind::Summary => {
                    notification.severity >= self.min_severity
                }
            }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            TargetKind::Smtp(_) => "smtp",
            TargetKind::Webhook(_) => "webhook",
            TargetKind::Exec(_) => "exec",
            TargetKind::Heartbeat(_) => "heartbeat",
        }
    }

    /// One attempt. Out: the target's answer, escaped.
    pub(crate) async fn deliver(
        &self,
        notification: &Notification,
    ) -> Result<String, DeliveryError> {
        let notification = &Outgoing::new(notification)
            .map_err(|error| DeliveryError::refused(format!("writing JSON: {error}")))?;
        let attempt = async {
            match &self.kind {
                TargetKind::Smtp(smtp) => smtp.send(notification, self.timeout).await,
                TargetKind::Webhook(webhook) => webhook.send(notification).await,
                TargetKind::Exec(exec) => exec.run(notification, self.timeout).await,
                TargetKind::Heartbeat(heartbeat) => heartbeat.ping().await,
            }
        };
        self.limited(attempt).await
    }

    /// Whether it can be reached, without a message.
    pub(crate) async fn probe(&self) -> Result<String, DeliveryError> {
        let attempt = async {
            match &self.kind {
                TargetKind::Smtp(smtp) => smtp.probe(self.timeout).await,
                TargetKind::Webhook(webhook) => webhook.probe().await,
                TargetKind::Exec(exec) => exec.probe(),
                TargetKind::Heartbeat(heartbeat) => heartbeat.probe().await,
            }
        };
        self.limited(attempt).await
    }

    async fn limited(
        &self,
        attempt: impl Future<Output = Result<String, DeliveryError>>,
    ) -> Result<String, DeliveryError> {
        // A program has its own time-out, after which it is killed and reaped.
        let limit = self.timeout + Duration::from_secs(5);
        match tokio::time::timeout(limit, attempt).await {
            Ok(ended) => ended,
            Err(_) => {
                Err(DeliveryError::unavailable(format!("no answer within {} s", limit.as_secs())))
            }
        }
    }
}
