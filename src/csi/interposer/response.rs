//! Answers that the interposer itself gives.

use http::{HeaderMap, HeaderValue, Response};
use tonic::Status;

use crate::interposer::body::Body;
use crate::interposer::grpc::{STATUS, frame_message, put_status};

/// An answer with a status only.
pub(crate) fn error_response(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    put_status(headers, status);
    response
}

/// A successful answer with one message.
pub(crate) fn unary_response(message: &[u8]) -> Response<Body> {
    let Some(data) = frame_message(message) else {
        return error_response(&Status::resource_exhausted(
            "the answer is larger than a message of gRPC can be",
        ));
    };
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    let mut response = Response::new(Body::full(data, Some(trailers)));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
