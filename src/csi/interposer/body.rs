//! Bodies on their way through: as they come, or gathered first and then sent on.
//!
//! In: bodies of hyper. Out: the same frames and trailers. Lengths are never announced that the
//! sender did not announce: what arrives must not differ from what was sent. Knows nothing of
//! gRPC's messages.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::csi::interposer::{failure, grpc};

/// What is sent on, in either direction.
pub struct Body {
    first: Option<Bytes>,
    then: Then,
}

enum Then {
    End,
    Trailers(HeaderMap),
    Failure(hyper::Error),
    /// From the caller. When it breaks off, so does what is sent on, for the same reason.
    Request(Incoming),
    /// From the upstream. When the connection breaks off, that is told as gRPC does it.
    Response(Incoming),
}

impl Body {
    pub fn request(incoming: Incoming) -> Body {
        Body {
            first: None,
            then: Then::Request(incoming),
        }
    }

    pub fn response(incoming: Incoming) -> Body {
        Body {
            first: None,
            then: Then::Response(incoming),
        }
    }

    /// Headers only.
    pub fn none() -> Body {
        Body {
            first: None,
            then: Then::End,
        }
    }

    pub fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Body {
        let first = (!data.is_empty()).then_some(data);
        Body {
            first,
            then: trailers.map_or(Then::End, Then::Trailers),
        }
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
            Then::Request(incoming) => (ready!(Pin::new(incoming).poll_frame(cx)), false),
            Then::Response(incoming) => (ready!(Pin::new(incoming).poll_frame(cx)), true),
            Then::End | Then::Trailers(_) | Then::Failure(_) => {
                return Poll::Ready(match std::mem::replace(&mut self.then, Then::End) {
                    Then::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                    Then::Failure(error) => Some(Err(error)),
                    _ => None,
                });
            }
        };
        match frame {
            Some(Err(error)) if upstreams && !failure::is_reset(&error) => {
                self.then = Then::End;
                Poll::Ready(Some(Ok(Frame::trailers(grpc::broken_off(&error)))))
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none()
            && match &self.then {
                Then::End => true,
                Then::Trailers(_) | Then::Failure(_) => false,
                Then::Request(incoming) | Then::Response(incoming) => incoming.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body that was waited for.
pub enum Gathered {
    Whole(Bytes, Option<HeaderMap>),
    /// Larger than the limit, or broken off: as it would have been without waiting.
    Unread(Body),
}

/// Waits for the whole body, as far as it has `limit` bytes at most.
pub async fn request(incoming: Incoming, limit: usize) -> Gathered {
    gather(incoming, limit, Then::Request).await
}

pub async fn response(incoming: Incoming, limit: usize) -> Gathered {
    gather(incoming, limit, Then::Response).await
}

async fn gather(
    mut incoming: Incoming,
    limit: usize,
    rest: impl FnOnce(Incoming) -> Then,
) -> Gathered {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    loop {
        let frame = poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut incoming), cx)).await;
        let trailers = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    // Most messages are one frame, which need not be copied.
                    if first.is_empty() {
                        first = data;
                    } else {
                        if more.is_empty() {
                            more.extend_from_slice(&first);
                        }
                        more.extend_from_slice(&data);
                    }
                    if first.len().max(more.len()) > limit {
                        return Gathered::Unread(Body {
                            first: Some(joined(first, more)),
                            then: rest(incoming),
                        });
                    }
                    continue;
                }
                Err(frame) => frame.into_trailers().ok(),
            },
            Some(Err(error)) => {
                let first = joined(first, more);
                return Gathered::Unread(Body {
                    first: (!first.is_empty()).then_some(first),
                    then: Then::Failure(error),
                });
            }
            None => None,
        };
        return Gathered::Whole(joined(first, more), trailers);
    }
}

fn joined(first: Bytes, more: BytesMut) -> Bytes {
    if more.is_empty() {
        first
    } else {
        more.freeze()
    }
}
