//! Responses in flight, counted per uid: a client that sends requests and does not read the
//! responses cannot fill the daemon's memory.
//!
//! With HTTP/2 a client can close its window; the response then waits in memory as a whole. Pages
//! are limited in bytes; this module limits the number of responses in flight per uid. A stream
//! (Watch) counts as one response and has further limits of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tonic::codegen::http::{Request, Response};
use tower::Service;

use crate::api::server::caller::peer_uid;
use crate::api::server::connection_quota::{QuotaPermit, UidQuota};
use crate::api::status::exhausted;

#[derive(Clone)]
pub(crate) struct ResponseQuotaService<S> {
    inner: S,
    quota: UidQuota,
}

impl<S> ResponseQuotaService<S> {
    pub(crate) fn new(inner: S, shares: UidQuota) -> ResponseQuotaService<S> {
        ResponseQuotaService {
            inner,
            quota: shares,
        }
    }
}

impl<S, B> Service<Request<B>> for ResponseQuotaService<S>
where
    S: Service<Request<B>, Response = Response<tonic::body::Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<QuotaBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let caller = request
            .extensions()
            .get::<tonic::transport::server::UdsConnectInfo>()
            .and_then(peer_uid);
        match self.quota.acquire(caller) {
            Some(share) => {
                let answer = self.inner.call(request);
                Box::pin(async move {
                    Ok(answer.await?.map(|body| QuotaBody {
                        body,
                        _permit: Some(share),
                    }))
                })
            }
            None => {
                let refusal =
                    exhausted("too many answers are on their way to this uid; read them first")
                        .into_http();
                Box::pin(std::future::ready(Ok(refusal.map(|body| QuotaBody {
                    body,
                    _permit: None,
                }))))
            }
        }
    }
}

/// A body that returns its share when it has been sent or dropped.
#[derive(Default)]
pub(crate) struct QuotaBody {
    body: tonic::body::Body,
    _permit: Option<QuotaPermit>,
}

impl Body for QuotaBody {
    type Data = <tonic::body::Body as Body>::Data;
    type Error = <tonic::body::Body as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
