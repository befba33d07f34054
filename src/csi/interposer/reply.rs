//! The upstream driver's answer to a unary call: decoded if possible, and sent unchanged or with
//! another message.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response};
use hyper::body::Incoming;
use tonic::Code;

use crate::interposer::body::{Body, BufferedBody};
use crate::interposer::{body, grpc};

/// Larger answers are not decoded, in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

pub(crate) enum Reply {
    Success(SuccessReply),
    /// An error, by its grpc-status.
    ErrorStatus(Code, Response<Body>),
    /// Not decodable: too large, unknown compression, aborted, not gRPC, or an absent upstream.
    Opaque(Response<Body>),
}

pub(crate) struct SuccessReply {
    pub message: Bytes,
    head: Parts,
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) async fn read(answer: Response<Incoming>) -> Reply {
        let (head, incoming) = answer.into_parts();
        if let Some(code) = grpc::grpc_status(&head.headers).filter(|code| *code != Code::Ok) {
            return Reply::ErrorStatus(code, Response::from_parts(head, Body::response(incoming)));
        }
        let (data, trailers) = match body::buffer_response(incoming, MAX_RESPONSE_BYTES).await {
            BufferedBody::Complete(data, trailers) => (data, trailers),
            BufferedBody::Unbuffered(body) => {
                return Reply::Opaque(Response::from_parts(head, body));
            }
        };
        match trailers.as_ref().and_then(grpc::grpc_status) {
            Some(Code::Ok) => match grpc::only_message(&data, &head.headers) {
                Some(message) => Reply::Success(SuccessReply { message, head, data, trailers }),
                None => Reply::Opaque(Response::from_parts(head, Body::full(data, trailers))),
            },
            Some(code) => {
                Reply::ErrorStatus(code, Response::from_parts(head, Body::full(data, trailers)))
            }
            None => Reply::Opaque(Response::from_parts(head, Body::full(data, trailers))),
        }
    }

    pub(crate) fn untouched(self) -> Response<Body> {
        match self {
            Reply::Success(good) => good.untouched(),
            Reply::ErrorStatus(_, answer) | Reply::Opaque(answer) => answer,
        }
    }
}

impl SuccessReply {
    pub(crate) fn untouched(self) -> Response<Body> {
        Response::from_parts(self.head, Body::full(self.data, self.trailers))
    }

    /// The same answer with another message. Unchanged if equal or too large.
    pub(crate) fn with_message(mut self, message: &[u8]) -> Response<Body> {
        if message == self.message {
            return self.untouched();
        }
        let Some(data) = grpc::frame_message(message) else {
            return self.untouched();
        };
        self.head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(self.head, Body::full(data, self.trailers))
    }
}
