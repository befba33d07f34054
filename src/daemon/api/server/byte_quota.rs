//! The memory of calls: one budget in bytes for both sockets, counted per caller (`Share`), for requests that
//! are being received or handled and for responses that the client has not read.
//!
//! A client can keep all of them in memory: it leaves requests unfinished, or closes its HTTP/2
//! window. A response's bytes are counted until the connection has written or dropped them, so they
//! own their share (`Bytes::from_owner`). Connections and streams are limited in number by
//! `Limits`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower::Service;

use crate::api::server::caller::{Caller, refuse};
use crate::api::server::quota::{BytePermit, ByteQuota, Share};
use diskvitals_quota::places::InUse;
use diskvitals_quota::refusals::{Refusal, RefusalCounts};

/// What a call needs beside its headers and messages: the stream, the handler's state.
const CALL_BYTES: usize = 4 << 10;
/// A message that is being received lies in a buffer that doubles as it grows.
const BUFFER_GROWTH: usize = 2;

#[derive(Clone)]
pub(crate) struct ByteQuotaService<S> {
    inner: S,
    quota: ByteQuota,
}

impl<S> ByteQuotaService<S> {
    pub(crate) fn new(inner: S, quota: ByteQuota) -> ByteQuotaService<S> {
        ByteQuotaService { inner, quota }
    }
}

/// The permit of a request: for the call, its headers, and what was received of its message.
type RequestPermit = Arc<CallPermit>;

struct CallPermit {
    bytes: Mutex<BytePermit>,
    refusals: Option<RefusalCounts>,
    /// The connection is in use until the call is over.
    _in_use: Option<InUse>,
}

fn resize(permit: &RequestPermit, amount: impl FnOnce(usize) -> usize) -> bool {
    let mut permit = permit.bytes.lock().unwrap_or_else(PoisonError::into_inner);
    let amount = amount(permit.amount());
    permit.resize(amount)
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

impl<S> Service<Request<tonic::body::Body>> for ByteQuotaService<S>
where
    S: Service<Request<tonic::body::Body>, Response = Response<tonic::body::Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<tonic::body::Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let caller = request.extensions().get::<Caller>();
        let share = caller.map_or(Share::Uid(None), Caller::share);
        let refusals = caller.map(|caller| caller.refusals.clone());
        let amount = CALL_BYTES + header_bytes(request.headers());
        let Some(permit) = self.quota.acquire(&share, amount) else {
            return Box::pin(std::future::ready(Ok(
                refuse(refusals.as_ref(), Refusal::Memory).into_http()
            )));
        };
        let permit = Arc::new(CallPermit {
            bytes: Mutex::new(permit),
            refusals,
            _in_use: caller.map(|caller| caller.activity.begin()),
        });
        let request = request
            .map(|body| tonic::body::Body::new(RequestBody { body, permit: permit.clone() }));
        let answer = self.inner.call(request);
        let quota = self.quota.clone();
        Box::pin(async move {
            let (head, body) = answer.await?.into_parts();
            resize(&permit, |_| CALL_BYTES);
            let mut body = ResponseBody { body, first: None, quota, share, permit };
            // A complete response is encoded now: its size is known, and its parts are freed.
            let first = poll_fn(|cx| Poll::Ready(body.poll_charged(cx))).await;
            match first {
                Poll::Ready(Some(Err(status))) => return Ok(status.into_http()),
                Poll::Ready(Some(Ok(frame))) => body.first = Some(frame),
                Poll::Ready(None) | Poll::Pending => {}
            }
            Ok(Response::from_parts(head, tonic::body::Body::new(body)))
        })
    }
}

struct RequestBody {
    body: tonic::body::Body,
    permit: RequestPermit,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && !resize(&self.permit, |amount| amount + BUFFER_GROWTH * data.len())
        {
            return Poll::Ready(Some(Err(refuse(self.permit.refusals.as_ref(), Refusal::Memory))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct ResponseBody {
    body: tonic::body::Body,
    /// Encoded before the client's window was known to be open.
    first: Option<Frame<Bytes>>,
    quota: ByteQuota,
    share: Share,
    permit: RequestPermit,
}

/// Bytes of a response, with their permit until they are written or dropped.
struct ChargedBytes {
    bytes: Bytes,
    _permit: BytePermit,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ResponseBody {
    fn poll_charged(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            let bytes = match frame?.into_data() {
                Ok(bytes) => bytes,
                Err(trailers) => return Ok(trailers),
            };
            let permit = self.quota.acquire(&self.share, bytes.len());
            let _permit =
                permit.ok_or_else(|| refuse(self.permit.refusals.as_ref(), Refusal::Memory))?;
            Ok(Frame::data(Bytes::from_owner(ChargedBytes { bytes, _permit })))
        }))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => self.poll_charged(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }
}
