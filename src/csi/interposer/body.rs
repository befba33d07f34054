//! HTTP bodies that pass through the interposer: streamed unchanged, or buffered first and then
//! sent.
//!
//! In: hyper bodies. Out: the same frames and trailers. A content length is announced only if the
//! sender announced it, so that the receiver gets exactly the sent bytes. The module does not
//! depend on gRPC messages.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::interposer::{grpc, upstream_error};

/// The body of a request or of a response.
pub(crate) struct Body {
    first: Option<Bytes>,
    then: BodyRest,
}

enum BodyRest {
    End,
    Trailers(HeaderMap),
    Error(hyper::Error),
    /// A body from the caller. If it is aborted, the forwarded request is aborted for the same
    /// reason.
    Request(Incoming),
    /// A body from the upstream. If the connection ends early, the trailers report it as a gRPC
    /// status.
    Response(Incoming),
}

impl Body {
    pub(crate) fn request(incoming: Incoming) -> Body {
        Body { first: None, then: BodyRest::Request(incoming) }
    }

    pub(crate) fn response(incoming: Incoming) -> Body {
        Body { first: None, then: BodyRest::Response(incoming) }
    }

    /// A message with headers only.
    pub(crate) fn empty() -> Body {
        Body { first: None, then: BodyRest::End }
    }

    pub(crate) fn full(data: Bytes, trailers: Option<HeaderMap>) -> Body {
        let first = (!data.is_empty()).then_some(data);
        Body { first, then: trailers.map_or(BodyRest::End, BodyRest::Trailers) }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let (frame, upstreams) = match &mut self.then {
            BodyRest::Request(incoming) => (ready!(Pin::new(incoming).poll_frame(cx)), false),
            BodyRest::Response(incoming) => (ready!(Pin::new(incoming).poll_frame(cx)), true),
            BodyRest::End | BodyRest::Trailers(_) | BodyRest::Error(_) => {
                return Poll::Ready(match std::mem::replace(&mut self.then, BodyRest::End) {
                    BodyRest::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                    BodyRest::Error(error) => Some(Err(error)),
                    _ => None,
                });
            }
        };
        match frame {
            Some(Err(error)) if upstreams && !upstream_error::is_reset(&error) => {
                self.then = BodyRest::End;
                Poll::Ready(Some(Ok(Frame::trailers(grpc::disconnected_trailers(&error)))))
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none()
            && match &self.then {
                BodyRest::End => true,
                BodyRest::Trailers(_) | BodyRest::Error(_) => false,
                BodyRest::Request(incoming) | BodyRest::Response(incoming) => {
                    incoming.is_end_stream()
                }
            }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Result of buffering a body.
pub(crate) enum BufferedBody {
    Complete(Bytes, Option<HeaderMap>),
    /// The body is larger than the limit or was aborted; it streams the same as without buffering.
    Unbuffered(Body),
}

/// Buffers the whole body, up to `limit` bytes.
pub(crate) async fn buffer_request(incoming: Incoming, limit: usize) -> BufferedBody {
    buffer(incoming, limit, BodyRest::Request).await
}

pub(crate) async fn buffer_response(incoming: Incoming, limit: usize) -> BufferedBody {
    buffer(incoming, limit, BodyRest::Response).await
}

async fn buffer(
    mut incoming: Incoming,
    limit: usize,
    rest: impl FnOnce(Incoming) -> BodyRest,
) -> BufferedBody {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    loop {
        let frame = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut incoming), cx)).await;
        let trailers = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    // Most messages have one frame, which need not be copied.
                    if first.is_empty() {
                        first = data;
                    } else {
                        if more.is_empty() {
                            more.extend_from_slice(&first);
                        }
                        more.extend_from_slice(&data);
                    }
                    if first.len().max(more.len()) > limit {
                        return BufferedBody::Unbuffered(Body {
                            first: Some(concat_bytes(first, more)),
                            then: rest(incoming),
                        });
                    }
                    continue;
                }
                Err(frame) => frame.into_trailers().ok(),
            },
            Some(Err(error)) => {
                let first = concat_bytes(first, more);
                return BufferedBody::Unbuffered(Body {
                    first: (!first.is_empty()).then_some(first),
                    then: BodyRest::Error(error),
                });
            }
            None => None,
        };
        return BufferedBody::Complete(concat_bytes(first, more), trailers);
    }
}

fn concat_bytes(first: Bytes, more: BytesMut) -> Bytes {
    if more.is_empty() { first } else { more.freeze() }
}
