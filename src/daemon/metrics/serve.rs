//! The daemon's answers to scrapes.
//!
//! In: a bound socket, the newest snapshot, its cached texts. Out: the text in the format that the
//! scraper accepts.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, HeaderName, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::metrics::scrape_cache::{Format, ScrapeError, ScrapeFormat, ScrapeHandle};
use crate::metrics::view::Node;
use diskvitals_exposition::server::{
    Limits, PATH, PLAIN, plain_response, response_with_type, serve_with,
};
use diskvitals_host::listen::{Accept, Incoming};
use diskvitals_model::snapshot::Snapshot;
use diskvitals_quota::refusals::SocketRefusals;
use diskvitals_text::causes::with_causes;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const GZIP: &str = "gzip";
/// The sources of a connection's answer.
#[derive(Clone, Debug)]
struct ScrapeContext {
    cache: ScrapeHandle,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    limits: Limits,
}

/// Serves until `stop` completes; then connections have `Limits::drain_timeout` to finish.
pub async fn serve<L>(
    incoming: Incoming<L>,
    node: Node,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    refusals: SocketRefusals,
    limits: Limits,
    stop: impl Future<Output = ()>,
) where
    L: Accept<Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static>,
{
    let (handle, cache) = ScrapeHandle::new(node, snapshots.clone(), refusals);
    // The cache ends when its last handle is dropped.
    tokio::spawn(cache.run());
    let source = ScrapeContext { cache: handle, snapshots, limits };
    let respond = move |request| {
        let source = source.clone();
        async move { respond(&request, source).await }
    };
    serve_with(incoming, limits, respond, stop).await;
}

async fn respond<B>(request: &Request<B>, mut source: ScrapeContext) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return plain_response(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain_response(StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    // Before the first complete snapshot, everything would appear good.
    let settled = timeout(
        source.limits.first_snapshot_timeout,
        source.snapshots.wait_for(|snapshot| snapshot.settled),
    )
    .await;
    // The borrow is released here, because it would block the publication of a newer snapshot.
    match settled.map(|shown| shown.map(drop)) {
        Ok(Ok(())) => {}
        Ok(Err(_)) => {
            return plain_response(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending\n");
        }
        Err(_) => {
            return plain_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "the first scan of this node is not complete yet\n",
            );
        }
    }
    let form = negotiate(request.headers());
    let text = match source.cache.scrape(form).await {
        Ok(text) => text,
        Err(ScrapeError::ShuttingDown) => {
            return plain_response(StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending\n");
        }
        Err(error) => {
            tracing::warn!(error = with_causes(&error), "a scrape could not be answered");
            return plain_response(
                StatusCode::INTERNAL_SERVER_ERROR,
                "writing the metrics went wrong\n",
            );
        }
    };
    let kind = match form.format {
        Format::OpenMetrics => OPENMETRICS,
        Format::Plain => PLAIN,
    };
    let mut response = response_with_type(Full::new(text), kind);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    if form.gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
    }
    response
}

/// RFC 9110, 12.5.1 and 12.5.3, as far as scrapers use it: the newer format if the
/// scraper accepts it with at least the weight of the older one, and gzip if it is named and not
/// refused.
fn negotiate(headers: &HeaderMap) -> ScrapeFormat {
    let (mut newer, mut older, mut gzip) = (0.0_f32, 0.0_f32, false);
    for (kind, weight) in weighted_values(headers, ACCEPT) {
        match kind.as_str() {
            "application/openmetrics-text" => newer = newer.max(weight),
            "text/plain" | "text/*" | "*/*" => older = older.max(weight),
            _ => {}
        }
    }
    for (coding, weight) in weighted_values(headers, ACCEPT_ENCODING) {
        gzip |= coding == GZIP && weight > 0.0;
    }
    ScrapeFormat {
        format: if newer > 0.0 && newer >= older { Format::OpenMetrics } else { Format::Plain },
        gzip,
    }
}

/// The values of a header, in lower case, each with its weight.
fn weighted_values(headers: &HeaderMap, of: HeaderName) -> impl Iterator<Item = (String, f32)> {
    let named = headers
        .get_all(of)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    named.map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .map_or(1.0, |q| q.parse().unwrap_or(0.0));
        (name, weight)
    })
}

#[cfg(test)]
mod tests;
