//! The delay that an overloaded API server asks for. Its rejections by priority and fairness are
//! plain text with the header Retry-After (apiserver/pkg/server/filters/priority-and-fairness.go);
//! kube keeps the text only.
//!
//! In: answers. Out: the same answers; one with the header has a Status that states the delay.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use kube::client::{Body, ClientBuilder};
use serde_json::{Value, json};
use tower::util::AndThenLayer;
use tower::{BoxError, Service};

/// The client of a service that speaks HTTP with the API server.
pub fn client_of<S, B>(builder: ClientBuilder<S>) -> kube::Client
where
    S: Service<http::Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    builder.with_layer(&AndThenLayer::new(keep_delay::<B>)).build()
}

async fn keep_delay<B>(response: Response<B>) -> Result<Response<Either<B, Full<Bytes>>>, BoxError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let status = response.status();
    let is_refusal = status.is_client_error() || status.is_server_error();
    let seconds = response.headers().get(header::RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let Some(seconds) = seconds.filter(|_| is_refusal) else {
        return Ok(response.map(Either::Left));
    };
    let (mut head, body) = response.into_parts();
    let text = body.collect().await.map_err(Into::into)?.to_bytes();
    let body = Bytes::from(with_delay(status, &text, seconds).to_string());
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, Either::Right(Full::new(body))))
}

fn with_delay(status: StatusCode, text: &[u8], seconds: u32) -> Value {
    let parsed = serde_json::from_slice::<Value>(text).ok();
    let mut answer = parsed.filter(|answer| answer["kind"] == "Status").unwrap_or_else(|| {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status.as_u16(),
            "reason": status.canonical_reason().unwrap_or_default().replace(' ', ""),
            "message": String::from_utf8_lossy(text).trim(),
        })
    });
    if !answer["details"].is_object() {
        answer["details"] = json!({});
    }
    answer["details"]["retryAfterSeconds"] = json!(seconds);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(response: Response<String>) -> Value {
        let kept = keep_delay(response).await.expect("an answer");
        let body = kept.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)))
    }

    fn response(code: u16, delay: Option<&str>, body: &str) -> Response<String> {
        let mut response = Response::builder().status(code);
        if let Some(delay) = delay {
            response = response.header("retry-after", delay);
        }
        response.body(body.to_owned()).expect("a response")
    }

    #[tokio::test]
    async fn a_rejection_in_plain_text_becomes_a_status_with_the_delay_of_its_header() {
        let text = "Too many requests, please try again later.\n";
        assert_eq!(
            read(response(429, Some("7"), text)).await,
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
                "reason": "TooManyRequests", "message": text.trim(),
                "details": {"retryAfterSeconds": 7},
            })
        );
        let status = r#"{"kind": "Status", "code": 503, "details": {"name": "a"}}"#;
        assert_eq!(
            read(response(503, Some("7"), status)).await["details"],
            json!({"name": "a", "retryAfterSeconds": 7})
        );
    }

    #[tokio::test]
    async fn every_other_answer_stays_as_it_is() {
        for (code, delay) in [(200, Some("7")), (429, None), (429, Some("tomorrow"))] {
            assert_eq!(read(response(code, delay, "text")).await, json!("text"));
        }
    }
}
