//! The upstream's answer to a call of one message: read where it can be, and sent on, as it was or
//! with another message in it.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response};
use hyper::body::Incoming;
use tonic::Code;

use crate::csi::interposer::body::{Body, Gathered};
use crate::csi::interposer::{body, grpc};

/// Larger answers are not looked into, in bytes.
const ANSWER: usize = 16 << 20;

pub enum Reply {
    Good(Good),
    /// An error, by its grpc-status.
    Refusal(Code, Response<Body>),
    /// What we cannot read: too large, in an unknown compression, broken off, not gRPC, or an
    /// upstream that is away.
    Other(Response<Body>),
}

pub struct Good {
    pub message: Bytes,
    head: Parts,
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl Reply {
    pub async fn read(answer: Response<Incoming>) -> Reply {
        let (head, incoming) = answer.into_parts();
        if let Some(code) = grpc::code(&head.headers).filter(|code| *code != Code::Ok) {
            return Reply::Refusal(code, Response::from_parts(head, Body::response(incoming)));
        }
        let (data, trailers) = match body::response(incoming, ANSWER).await {
            Gathered::Whole(data, trailers) => (data, trailers),
            Gathered::Unread(body) => return Reply::Other(Response::from_parts(head, body)),
        };
        match trailers.as_ref().and_then(grpc::code) {
            Some(Code::Ok) => match grpc::only_message(&data, &head.headers) {
                Some(message) => Reply::Good(Good {
                    message,
                    head,
                    data,
                    trailers,
                }),
                None => Reply::Other(Response::from_parts(head, Body::whole(data, trailers))),
            },
            Some(code) => Reply::Refusal(
                code,
                Response::from_parts(head, Body::whole(data, trailers)),
            ),
            None => Reply::Other(Response::from_parts(head, Body::whole(data, trailers))),
        }
    }

    pub fn untouched(self) -> Response<Body> {
        match self {
            Reply::Good(good) => good.untouched(),
            Reply::Refusal(_, answer) | Reply::Other(answer) => answer,
        }
    }
}

impl Good {
    pub fn untouched(self) -> Response<Body> {
        Response::from_parts(self.head, Body::whole(self.data, self.trailers))
    }

    /// The same answer with another message. Equal or too large: untouched.
    pub fn with(mut self, message: &[u8]) -> Response<Body> {
        if message == self.message {
            return self.untouched();
        }
        let Some(data) = grpc::framed(message) else {
            return self.untouched();
        };
        self.head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(self.head, Body::whole(data, self.trailers))
    }
}
