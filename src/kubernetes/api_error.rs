//! What became of a call to the API server: a time limit for each, and whether another attempt can
//! help.
//!
//! In: calls through kube. Out: answers, or classified errors.

use std::future::Future;
use std::time::Duration;

use kube::core::Status;

use diskvitals_text::causes::with_causes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// Another attempt may help, after a delay if the server requests one.
    Retryable { why: String, after: Option<Duration> },
    /// A permission is missing, permanently or because the API server has not loaded it yet.
    Forbidden(Rejection),
    /// The API server will never accept the request.
    Rejected(Rejection),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Code and reason, without the names of the refused objects.
    pub kind: String,
    pub why: String,
}

impl ApiError {
    /// The message, and the delay that the server requests.
    pub fn into_message_and_delay(self) -> (String, Option<Duration>) {
        match self {
            ApiError::Retryable { why, after } => (why, after),
            ApiError::Forbidden(refusal) | ApiError::Rejected(refusal) => (refusal.why, None),
        }
    }
}

pub async fn with_timeout<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(CallError::Kube),
        Err(_) => Err(CallError::TimedOut(limit)),
    }
}

/// The failure of one call.
pub enum CallError {
    Kube(kube::Error),
    TimedOut(Duration),
}

pub fn already_exists(error: &CallError) -> bool {
    matches!(error, CallError::Kube(kube::Error::Api(status)) if status.reason == "AlreadyExists")
}

/// Errors of the request are final; errors of the server, of its load or of the token's age are
/// not. A conflict between writers resolves itself.
pub fn classify_error(error: CallError) -> ApiError {
    let status = match error {
        CallError::Kube(kube::Error::Api(status)) => status,
        CallError::Kube(error) => {
            return ApiError::Retryable { why: with_causes(&error), after: None };
        }
        CallError::TimedOut(limit) => {
            return ApiError::Retryable {
                why: format!("the API server has not answered within {} s", limit.as_secs_f32()),
                after: None,
            };
        }
    };
    let kind = format!("{} {}", status.code, status.reason);
    let why = format!("{kind}: {}", status.message);
    match status.code {
        // The answer is not from the API server: kube parses any JSON as a status, for example a
        // load balancer's error.
        0..=399 => ApiError::Retryable {
            why: format!("an error of what is before the API server: {}", status.message),
            after: None,
        },
        401 | 408 | 409 | 429 | 500..=599 => {
            let seconds = status
                .details
                .map(|details| details.retry_after_seconds)
                .filter(|seconds| *seconds > 0);
            ApiError::Retryable {
                why,
                after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
            }
        }
        403 if !is_namespace_terminating(&status) => ApiError::Forbidden(Rejection { kind, why }),
        _ => ApiError::Rejected(Rejection { kind, why }),
    }
}

/// As reported by the NamespaceLifecycle admission plugin
/// (plugin/pkg/admission/namespace/lifecycle; metav1.NamespaceTerminatingCause).
fn is_namespace_terminating(status: &Status) -> bool {
    status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As kube reads an error's body.
    fn of(body: serde_json::Value) -> ApiError {
        classify_error(CallError::Kube(kube::Error::Api(
            serde_json::from_value(body).expect("a status"),
        )))
    }

    #[test]
    fn an_error_that_is_not_from_the_api_server_is_retried() {
        for body in [
            json!({"message": "no healthy upstream"}),
            json!({"code": 14, "message": "unavailable"}),
            json!({}),
        ] {
            assert!(matches!(of(body.clone()), ApiError::Retryable { after: None, .. }), "{body}");
        }
    }

    #[test]
    fn a_missing_permission_is_forbidden_and_a_terminating_namespace_is_rejected() {
        let status = |code: u16, causes: serde_json::Value| {
            of(
                json!({"kind": "Status", "code": code, "reason": "Forbidden", "message": "events \"a\" is forbidden", "details": {"causes": causes}}),
            )
        };
        let refusal = || Rejection {
            kind: "403 Forbidden".into(),
            why: "403 Forbidden: events \"a\" is forbidden".into(),
        };
        assert_eq!(status(403, json!([])), ApiError::Forbidden(refusal()));
        let going = json!([{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated", "field": "metadata.namespace"}]);
        assert_eq!(status(403, going), ApiError::Rejected(refusal()));
        assert!(matches!(status(422, json!([])), ApiError::Rejected(_)));
    }
}
