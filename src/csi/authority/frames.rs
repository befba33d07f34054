//! Rewrites the HTTP/2 frames of a client (RFC 9113): finds `:authority` in header blocks (HPACK,
//! RFC 7541) and replaces it if it is invalid.
//!
//! In: a client's bytes, split at any position. Out: the bytes for the server. No I/O, no clock.
//!
//! While every authority is valid, every byte passes unchanged, so the server's HPACK table equals
//! the client's. From the first invalid authority on, header blocks are encoded again without
//! reference to any table; the content of the server's table is then irrelevant. The decoder here
//! follows the client's table from the first block on. The frames are parsed here because h2 and
//! hyper offer no access to header blocks before validation.

use http::uri::Authority;
use loona_hpack::Decoder;

/// The connection preface (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest header block in bytes, as sent with its frame headers, and as the sum of RFC 7541, 4.1.
/// Servers accept less (hyper 16 KiB by default).
pub(crate) const MAX_HEADER_BLOCK: usize = 256 << 10;

/// Length of a frame header: length, type, flags, stream.
const FRAME_HEADER_LEN: usize = 9;
/// SETTINGS_MAX_FRAME_SIZE that every peer accepts (RFC 9113, 6.5.2).
const MAX_FRAME_SIZE: usize = 16_384;
/// SETTINGS_HEADER_TABLE_SIZE unless the server announces another; ours announces none (RFC 9113,
/// 6.5.2).
const HEADER_TABLE_SIZE: usize = 4096;
/// Bytes that an entry of a header list counts in addition to its text (RFC 7541, 4.1).
const ENTRY_OVERHEAD: usize = 32;

const HEADERS: u8 = 0x1;
const PUSH_PROMISE: u8 = 0x5;
const CONTINUATION: u8 = 0x9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

const AUTHORITY: &[u8] = b":authority";
/// The authority that gRPC clients with a valid authority send for a unix socket.
const REPLACEMENT: &[u8] = b"localhost";

/// The reason why a connection must end.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum FrameError {
    #[error("the connection does not begin with HTTP/2's preface")]
    Preface,
    #[error("a frame of type {0} where a header block had to be continued")]
    ExpectedContinuation(u8),
    #[error("CONTINUATION without a header block")]
    UnexpectedContinuation,
    #[error("a client must not send PUSH_PROMISE")]
    PushPromise,
    #[error("HEADERS too short for its padding or priority")]
    TooShort,
    #[error("a header block of more than {MAX_HEADER_BLOCK} bytes")]
    TooLarge,
    #[error("a header block that is not HPACK")]
    Hpack(#[source] loona_hpack::decoder::DecoderError),
}

/// A frame header (RFC 9113, 4.1).
#[derive(Clone, Copy, Debug)]
struct FrameHeader {
    length: usize,
    kind: u8,
    flags: u8,
    /// The stream with the reserved bit, which passes unchanged.
    stream: [u8; 4],
}

impl FrameHeader {
    fn parse(bytes: [u8; FRAME_HEADER_LEN]) -> FrameHeader {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        FrameHeader {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream,
        }
    }
}

/// The parser's position in the byte stream.
#[derive(Clone, Copy, Debug)]
enum ParseState {
    /// Number of preface bytes that are received.
    Preface(usize),
    /// Number of frame header bytes that are received.
    Header(usize),
    /// Number of bytes that are still missing of a frame that passes unchanged.
    PassThrough(usize),
    /// Number of bytes that are still missing of a frame with a header block.
    Buffered(usize),
}

/// An incomplete header block.
#[derive(Debug)]
struct HeaderBlock {
    stream: [u8; 4],
    end_stream: bool,
    priority: Option<[u8; 5]>,
    /// The HPACK data of the complete frames.
    fragments: Vec<u8>,
}

/// The parser's state for one connection.
pub struct FrameRewriter {
    state: ParseState,
    header: [u8; FRAME_HEADER_LEN],
    /// The original frames of the open header block.
    buffered: Vec<u8>,
    block: Option<HeaderBlock>,
    decoder: Decoder<'static>,
    /// An authority has been replaced: header blocks are encoded again.
    rewriting: bool,
}

impl std::fmt::Debug for FrameRewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames")
            .field("place", &self.state)
            .field("held", &self.buffered.len())
            .field("anew", &self.rewriting)
            .finish_non_exhaustive()
    }
}

impl Default for FrameRewriter {
    fn default() -> FrameRewriter {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(HEADER_TABLE_SIZE);
        FrameRewriter {
            state: ParseState::Preface(0),
            header: [0; FRAME_HEADER_LEN],
            buffered: Vec::new(),
            block: None,
            decoder,
            rewriting: false,
        }
    }
}

impl FrameRewriter {
    /// Processes `bytes`, appends the server's bytes to `out`, and returns the number of processed
    /// bytes: all, unless `out` has reached `enough`. An incomplete frame header or header block is
    /// held back. After an error no more bytes are accepted.
    pub fn rewrite(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<usize, FrameError> {
        let mut seen = 0;
        while seen < bytes.len() && out.len() < enough {
            seen += self.step(&bytes[seen..], out)?;
        }
        Ok(seen)
    }

    /// Processes at least one byte. `bytes` is not empty.
    fn step(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, FrameError> {
        match self.state {
            ParseState::Preface(have) => {
                let now = bytes.len().min(PREFACE.len() - have);
                if bytes[..now] != PREFACE[have..have + now] {
                    return Err(FrameError::Preface);
                }
                out.extend_from_slice(&bytes[..now]);
                self.state = if have + now == PREFACE.len() {
                    ParseState::Header(0)
                } else {
                    ParseState::Preface(have + now)
                };
                Ok(now)
            }
            ParseState::Header(have) => {
                let now = bytes.len().min(FRAME_HEADER_LEN - have);
                self.header[have..have + now].copy_from_slice(&bytes[..now]);
                self.state = ParseState::Header(have + now);
                if have + now == FRAME_HEADER_LEN {
                    self.begin_frame(FrameHeader::parse(self.header), out)?;
                }
                Ok(now)
            }
            ParseState::PassThrough(missing) => {
                let now = bytes.len().min(missing);
                out.extend_from_slice(&bytes[..now]);
                self.state = if now == missing {
                    ParseState::Header(0)
                } else {
                    ParseState::PassThrough(missing - now)
                };
                Ok(now)
            }
            ParseState::Buffered(missing) => {
                let now = bytes.len().min(missing);
                self.buffered.extend_from_slice(&bytes[..now]);
                self.state = ParseState::Buffered(missing - now);
                if now == missing {
                    self.end_frame(FrameHeader::parse(self.header), out)?;
                }
                Ok(now)
            }
        }
    }

    /// Starts a frame whose header is complete.
    fn begin_frame(&mut self, header: FrameHeader, out: &mut Vec<u8>) -> Result<(), FrameError> {
        match (&self.block, header.kind) {
            (Some(block), CONTINUATION) if block.stream == header.stream => {}
            (Some(_), kind) => return Err(FrameError::ExpectedContinuation(kind)),
            (None, CONTINUATION) => return Err(FrameError::UnexpectedContinuation),
            (None, PUSH_PROMISE) => return Err(FrameError::PushPromise),
            (None, HEADERS) => {}
            (None, _) => {
                out.extend_from_slice(&self.header);
                self.state = if header.length == 0 {
                    ParseState::Header(0)
                } else {
                    ParseState::PassThrough(header.length)
                };
                return Ok(());
            }
        }
        if self.buffered.len() + FRAME_HEADER_LEN + header.length > MAX_HEADER_BLOCK {
            return Err(FrameError::TooLarge);
        }
        self.buffered.extend_from_slice(&self.header);
        self.state = ParseState::Buffered(header.length);
        if header.length == 0 { self.end_frame(header, out) } else { Ok(()) }
    }

    /// Ends a frame with a header block: the last `length` buffered bytes.
    fn end_frame(&mut self, head: FrameHeader, out: &mut Vec<u8>) -> Result<(), FrameError> {
        self.state = ParseState::Header(0);
        let payload = &self.buffered[self.buffered.len() - head.length..];
        let mut block = match self.block.take() {
            None => parse_headers(head, payload)?,
            Some(mut block) => {
                block.fragments.extend_from_slice(payload);
                block
            }
        };
        if head.flags & END_HEADERS == 0 {
            self.block = Some(block);
            return Ok(());
        }
        let list = decode_block(&mut self.decoder, &block.fragments)?;
        let held = std::mem::take(&mut self.buffered);
        self.rewriting |=
            list.iter().any(|(name, value)| name == AUTHORITY && !is_valid_authority(value));
        if self.rewriting {
            block.fragments = encode_block(&list);
            write_block(&block, out);
        } else {
            out.extend_from_slice(&held);
        }
        Ok(())
    }
}

/// Removes padding and priority from HEADERS (RFC 9113, 6.2).
fn parse_headers(head: FrameHeader, mut payload: &[u8]) -> Result<HeaderBlock, FrameError> {
    let mut padding = 0;
    if head.flags & PADDED != 0 {
        let (length, rest) = payload.split_first().ok_or(FrameError::TooShort)?;
        (padding, payload) = (usize::from(*length), rest);
    }
    let mut priority = None;
    if head.flags & PRIORITY != 0 {
        let (fields, rest) = payload.split_first_chunk().ok_or(FrameError::TooShort)?;
        (priority, payload) = (Some(*fields), rest);
    }
    let length = payload.len().checked_sub(padding).ok_or(FrameError::TooShort)?;
    Ok(HeaderBlock {
        stream: head.stream,
        end_stream: head.flags & END_STREAM != 0,
        priority,
        fragments: payload[..length].to_vec(),
    })
}

type HeaderList = Vec<(Vec<u8>, Vec<u8>)>;

/// Decodes the whole block, so that the decoder's table equals the client's, but keeps nothing
/// beyond [`BLOCK`].
fn decode_block(decoder: &mut Decoder<'static>, block: &[u8]) -> Result<HeaderList, FrameError> {
    let (mut list, mut size) = (HeaderList::new(), 0usize);
    let keep = |name: std::borrow::Cow<'_, [u8]>, value: std::borrow::Cow<'_, [u8]>| {
        size += ENTRY_OVERHEAD + name.len() + value.len();
        if size <= MAX_HEADER_BLOCK {
            list.push((name.into_owned(), value.into_owned()));
        }
    };
    decoder.decode_with_cb(block, keep).map_err(FrameError::Hpack)?;
    if size > MAX_HEADER_BLOCK {
        return Err(FrameError::TooLarge);
    }
    Ok(list)
}

/// The same check as in h2 before it accepts a request.
fn is_valid_authority(authority: &[u8]) -> bool {
    Authority::try_from(authority).is_ok()
}

/// Encodes literals as "never indexed" (RFC 7541, 6.2.3): they change no table, and keep fields
/// unindexed that the client sent unindexed.
fn encode_block(list: &HeaderList) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in list {
        block.push(0x10);
        encode_string(name, &mut block);
        let replaced = name == AUTHORITY && !is_valid_authority(value);
        encode_string(if replaced { REPLACEMENT } else { value }, &mut block);
    }
    block
}

/// Encodes a string without Huffman coding (RFC 7541, 5.2); the length begins with seven bits in
/// the first byte (5.1).
fn encode_string(text: &[u8], block: &mut Vec<u8>) {
    const FULL: usize = 0x7f;
    let low_bits = |number: usize| u8::try_from(number & FULL).unwrap_or(0x7f);
    if text.len() < FULL {
        block.push(low_bits(text.len()));
    } else {
        block.push(0x7f);
        let mut rest = text.len() - FULL;
        while rest > FULL {
            block.push(0x80 | low_bits(rest));
            rest >>= 7;
        }
        block.push(low_bits(rest));
    }
    block.extend_from_slice(text);
}

/// Writes HEADERS and as many CONTINUATION frames as are needed, without padding.
fn write_block(block: &HeaderBlock, out: &mut Vec<u8>) {
    let mut flags = 0;
    if block.end_stream {
        flags |= END_STREAM;
    }
    let priority: &[u8] = block.priority.as_ref().map_or(&[], |fields| fields);
    if block.priority.is_some() {
        flags |= PRIORITY;
    }
    let first = block.fragments.len().min(MAX_FRAME_SIZE - priority.len());
    let (first, rest) = block.fragments.split_at(first);
    if rest.is_empty() {
        flags |= END_HEADERS;
    }
    write_frame(HEADERS, flags, block.stream, &[priority, first], out);
    let mut continued = rest.chunks(MAX_FRAME_SIZE).peekable();
    while let Some(chunk) = continued.next() {
        write_frame(
            CONTINUATION,
            if continued.peek().is_none() { END_HEADERS } else { 0 },
            block.stream,
            &[chunk],
            out,
        );
    }
}

/// `parts` have at most [`FRAME`] bytes together.
fn write_frame(kind: u8, flags: u8, stream: [u8; 4], parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let [.., a, b, c] = length.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream);
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests;
