//! The parts of gRPC over HTTP/2 that a proxy needs: the messages in a body, and the status of an
//! answer. Sources: grpc.io, "gRPC over HTTP2" and "Compression".

use std::io::Read;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

use diskvitals_text::causes::with_causes;

pub(super) const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
const ENCODING: &str = "grpc-encoding";
/// Length of the flag and length field before each message.
const PREFIX_LEN: usize = 5;
/// Maximum size of a decompressed message, in bytes.
const MAX_DECOMPRESSED_BYTES: u64 = 64 << 20;

/// The only message in a body. None if there are none or several, or its compression is unknown.
pub fn only_message(data: &Bytes, headers: &HeaderMap) -> Option<Bytes> {
    let flag = *data.first()?;
    let length = u32::from_be_bytes(data.get(1..PREFIX_LEN)?.try_into().ok()?);
    let message = data.slice(PREFIX_LEN..);
    if message.len() != usize::try_from(length).ok()? {
        return None;
    }
    match flag {
        0 => Some(message),
        1 if headers.get(ENCODING).is_some_and(|encoding| encoding == "gzip") => {
            decompress(&message)
        }
        _ => None,
    }
}

fn decompress(message: &[u8]) -> Option<Bytes> {
    let mut out = Vec::new();
    // A truncated message is invalid.
    let read =
        GzDecoder::new(message).take(MAX_DECOMPRESSED_BYTES + 1).read_to_end(&mut out).ok()?;
    (read as u64 <= MAX_DECOMPRESSED_BYTES).then(|| Bytes::from(out))
}

/// Frames a message uncompressed, which is valid under every `grpc-encoding`.
pub fn frame_message(message: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(message.len()).ok()?;
    let mut out = BytesMut::with_capacity(PREFIX_LEN + message.len());
    out.put_u8(0);
    out.put_u32(length);
    out.put_slice(message);
    Some(out.freeze())
}

/// grpc-status from headers (an answer of trailers only) or from trailers.
pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<Code> {
    headers.get(STATUS).map(|status| Code::from_bytes(status.as_bytes()))
}

/// Trailers of an answer whose connection ended before it was complete.
pub(crate) fn disconnected_trailers(error: &hyper::Error) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    put_status(
        &mut trailers,
        &Status::unavailable(format!(
            "the upstream driver broke the connection off: {}",
            with_causes(error)
        )),
    );
    trailers
}

pub(super) fn put_status(headers: &mut HeaderMap, status: &Status) {
    headers.insert(STATUS, HeaderValue::from(i32::from(status.code())));
    if let Ok(message) = HeaderValue::from_str(&percent_encode(status.message())) {
        headers.insert(MESSAGE, message);
    }
}

/// Encodes Status-Message: bytes outside printable ASCII, and the percent sign, become %XX.
fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::interposer::response::error_response;

    #[test]
    fn a_body_of_one_message_is_understood_and_no_other() {
        let body = frame_message(b"abc").expect("fits");
        let plain = HeaderMap::new();
        assert_eq!(only_message(&body, &plain).as_deref(), Some(&b"abc"[..]));
        assert_eq!(only_message(&Bytes::new(), &plain), None);
        assert_eq!(only_message(&body.slice(..7), &plain), None);
        assert_eq!(only_message(&[body.clone(), body].concat().into(), &plain), None);
    }

    #[test]
    fn a_gzipped_message_is_read_and_one_of_another_encoding_is_left_alone() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"abc").expect("writes");
        let packed = encoder.finish().expect("ends");
        let mut body = frame_message(&packed).expect("fits").to_vec();
        body[0] = 1;
        let body = Bytes::from(body);
        let mut headers = HeaderMap::new();
        headers.insert(ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(only_message(&body, &headers).as_deref(), Some(&b"abc"[..]));
        headers.insert(ENCODING, HeaderValue::from_static("snappy"));
        assert_eq!(only_message(&body, &headers), None);
    }

    #[test]
    fn a_status_message_is_plain_ascii_on_the_wire() {
        assert_eq!(percent_encode("100 % gone:\nä"), "100 %25 gone:%0A%C3%A4");
        let headers = error_response(&Status::not_found("ä")).into_parts().0.headers;
        assert_eq!(
            (grpc_status(&headers), &headers[MESSAGE]),
            (Some(Code::NotFound), &HeaderValue::from_static("%C3%A4"))
        );
    }
}
