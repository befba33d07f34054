//! HTTP/2's frames as a client sends them (RFC 9113), as far as is needed to find `:authority` in
//! header blocks (HPACK, RFC 7541) and to replace it.
//!
//! In: a client's bytes, cut anywhere. Out: the bytes for the server. Pure: no I/O, no clock.
//!
//! As long as every authority is valid, every byte goes through as it came, and so the server's
//! table of HPACK stays the client's. With the first that is not, and from then on, header blocks
//! are written anew, without reference to any table: whatever the server's table holds by then does
//! not matter any more. The decoder here follows the client's table from the first block on.

use http::uri::Authority;
use loona_hpack::Decoder;

/// RFC 9113, 3.4.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest header block in bytes, as sent, with its frames' heads, and as the sum of RFC 7541, 4.1.
/// Servers take less (hyper 16 KiB, unless told otherwise).
pub const BLOCK: usize = 256 << 10;

/// Of a frame: length, type, flags, stream.
const HEAD: usize = 9;
/// SETTINGS_MAX_FRAME_SIZE as every peer takes it (RFC 9113, 6.5.2).
const FRAME: usize = 16_384;
/// SETTINGS_HEADER_TABLE_SIZE unless the server announces another; ours announces none (RFC 9113,
/// 6.5.2).
const TABLE: usize = 4096;
/// What an entry of a header list counts beside its letters (RFC 7541, 4.1).
const ENTRY: usize = 32;

const HEADERS: u8 = 0x1;
const PUSH_PROMISE: u8 = 0x5;
const CONTINUATION: u8 = 0x9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

const AUTHORITY: &[u8] = b":authority";
/// What gRPC's clients send for a unix socket, if they send what is valid.
const REPLACEMENT: &[u8] = b"localhost";

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Malformed {
    #[error("the connection does not begin with HTTP/2's preface")]
    Preface,
    #[error("a frame of type {0} where a header block had to be continued")]
    NotContinued(u8),
    #[error("CONTINUATION without a header block")]
    NothingToContinue,
    #[error("a client must not send PUSH_PROMISE")]
    Pushed,
    #[error("HEADERS too short for its padding or priority")]
    TooShort,
    #[error("a header block of more than {BLOCK} bytes")]
    TooLarge,
    #[error("a header block that is not HPACK")]
    Hpack(#[source] loona_hpack::decoder::DecoderError),
}

/// A frame's head (RFC 9113, 4.1).
#[derive(Clone, Copy, Debug)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    /// With the reserved bit, which goes through as it came.
    stream: [u8; 4],
}

impl Head {
    fn read(bytes: [u8; HEAD]) -> Head {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Head {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream,
        }
    }
}

/// Where in the stream of bytes the next one belongs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// So many bytes of the preface have come.
    Preface(usize),
    /// So many bytes of a head have come.
    Head(usize),
    /// So many bytes of a frame that goes through are missing.
    Through(usize),
    /// So many bytes of a frame with a header block are missing.
    Held(usize),
}

/// A header block whose end has not come.
#[derive(Debug)]
struct Block {
    stream: [u8; 4],
    end_stream: bool,
    priority: Option<[u8; 5]>,
    /// HPACK, of the frames that are complete.
    fragments: Vec<u8>,
}

/// What has been seen of one connection.
pub struct Frames {
    place: Place,
    head: [u8; HEAD],
    /// The frames of the header block that is open, as they came.
    held: Vec<u8>,
    block: Option<Block>,
    decoder: Decoder<'static>,
    /// An authority has been replaced: header blocks are written anew.
    anew: bool,
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames")
            .field("place", &self.place)
            .field("held", &self.held.len())
            .field("anew", &self.anew)
            .finish_non_exhaustive()
    }
}

impl Frames {
    pub fn new() -> Frames {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(TABLE);
        Frames {
            place: Place::Preface(0),
            head: [0; HEAD],
            held: Vec::new(),
            block: None,
            decoder,
            anew: false,
        }
    }

    /// Looks at `bytes`, appends to `out` what the server shall read, and says how many bytes it
    /// has looked at: all, unless `out` has reached `enough`. An incomplete head or header block is
    /// held back. After an error nothing more can be taken.
    pub fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<usize, Malformed> {
        let mut seen = 0;
        while seen < bytes.len() && out.len() < enough {
            seen += self.step(&bytes[seen..], out)?;
        }
        Ok(seen)
    }

    /// One move, over at least one byte. `bytes` is not empty.
    fn step(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Malformed> {
        match self.place {
            Place::Preface(have) => {
                let now = bytes.len().min(PREFACE.len() - have);
                if bytes[..now] != PREFACE[have..have + now] {
                    return Err(Malformed::Preface);
                }
                out.extend_from_slice(&bytes[..now]);
                self.place = if have + now == PREFACE.len() {
                    Place::Head(0)
                } else {
                    Place::Preface(have + now)
                };
                Ok(now)
            }
            Place::Head(have) => {
                let now = bytes.len().min(HEAD - have);
                self.head[have..have + now].copy_from_slice(&bytes[..now]);
                self.place = Place::Head(have + now);
                if have + now == HEAD {
                    self.begin(Head::read(self.head), out)?;
                }
                Ok(now)
            }
            Place::Through(missing) => {
                let now = bytes.len().min(missing);
                out.extend_from_slice(&bytes[..now]);
                self.place = if now == missing {
                    Place::Head(0)
                } else {
                    Place::Through(missing - now)
                };
                Ok(now)
            }
            Place::Held(missing) => {
                let now = bytes.len().min(missing);
                self.held.extend_from_slice(&bytes[..now]);
                self.place = Place::Held(missing - now);
                if now == missing {
                    self.end(Head::read(self.head), out)?;
                }
                Ok(now)
            }
        }
    }

    /// A frame's head is complete.
    fn begin(&mut self, head: Head, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match (&self.block, head.kind) {
            (Some(block), CONTINUATION) if block.stream == head.stream => {}
            (Some(_), kind) => return Err(Malformed::NotContinued(kind)),
            (None, CONTINUATION) => return Err(Malformed::NothingToContinue),
            (None, PUSH_PROMISE) => return Err(Malformed::Pushed),
            (None, HEADERS) => {}
            (None, _) => {
                out.extend_from_slice(&self.head);
                self.place = if head.length == 0 {
                    Place::Head(0)
                } else {
                    Place::Through(head.length)
                };
                return Ok(());
            }
        }
        if self.held.len() + HEAD + head.length > BLOCK {
            return Err(Malformed::TooLarge);
        }
        self.held.extend_from_slice(&self.head);
        self.place = Place::Held(head.length);
        if head.length == 0 {
            self.end(head, out)
        } else {
            Ok(())
        }
    }

    /// A frame with a header block is complete: the last `length` bytes of what is held.
    fn end(&mut self, head: Head, out: &mut Vec<u8>) -> Result<(), Malformed> {
        self.place = Place::Head(0);
        let payload = &self.held[self.held.len() - head.length..];
        let mut block = match self.block.take() {
            None => opened(head, payload)?,
            Some(mut block) => {
                block.fragments.extend_from_slice(payload);
                block
            }
        };
        if head.flags & END_HEADERS == 0 {
            self.block = Some(block);
            return Ok(());
        }
        let list = decoded(&mut self.decoder, &block.fragments)?;
        let held = std::mem::take(&mut self.held);
        self.anew |= list
            .iter()
            .any(|(name, value)| name == AUTHORITY && !is_valid(value));
        if self.anew {
            block.fragments = encoded(&list);
            write(&block, out);
        } else {
            out.extend_from_slice(&held);
        }
        Ok(())
    }
}

/// HEADERS without its padding and priority (RFC 9113, 6.2).
fn opened(head: Head, mut payload: &[u8]) -> Result<Block, Malformed> {
    let mut padding = 0;
    if head.flags & PADDED != 0 {
        let (length, rest) = payload.split_first().ok_or(Malformed::TooShort)?;
        (padding, payload) = (usize::from(*length), rest);
    }
    let mut priority = None;
    if head.flags & PRIORITY != 0 {
        let (fields, rest) = payload.split_first_chunk().ok_or(Malformed::TooShort)?;
        (priority, payload) = (Some(*fields), rest);
    }
    let length = payload
        .len()
        .checked_sub(padding)
        .ok_or(Malformed::TooShort)?;
    Ok(Block {
        stream: head.stream,
        end_stream: head.flags & END_STREAM != 0,
        priority,
        fragments: payload[..length].to_vec(),
    })
}

type List = Vec<(Vec<u8>, Vec<u8>)>;

/// Always to the end, so that the decoder's table is the client's, but nothing is kept beyond
/// [`BLOCK`].
fn decoded(decoder: &mut Decoder<'static>, block: &[u8]) -> Result<List, Malformed> {
    let (mut list, mut size) = (List::new(), 0usize);
    let keep = |name: std::borrow::Cow<'_, [u8]>, value: std::borrow::Cow<'_, [u8]>| {
        size += ENTRY + name.len() + value.len();
        if size <= BLOCK {
            list.push((name.into_owned(), value.into_owned()));
        }
    };
    decoder
        .decode_with_cb(block, keep)
        .map_err(Malformed::Hpack)?;
    if size > BLOCK {
        return Err(Malformed::TooLarge);
    }
    Ok(list)
}

/// As h2 asks it before it takes a request.
fn is_valid(authority: &[u8]) -> bool {
    Authority::try_from(authority).is_ok()
}

/// Literals "never indexed" (RFC 7541, 6.2.3): they touch no table, and what the client did not
/// want to be indexed is not.
fn encoded(list: &List) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in list {
        block.push(0x10);
        string(name, &mut block);
        let replaced = name == AUTHORITY && !is_valid(value);
        string(if replaced { REPLACEMENT } else { value }, &mut block);
    }
    block
}

/// RFC 7541, 5.2, without Huffman's code; the length with seven bits in the first byte (5.1).
fn string(text: &[u8], block: &mut Vec<u8>) {
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

/// HEADERS, and as many CONTINUATIONs as are needed; without padding.
fn write(block: &Block, out: &mut Vec<u8>) {
    let mut flags = 0;
    if block.end_stream {
        flags |= END_STREAM;
    }
    let priority: &[u8] = block.priority.as_ref().map_or(&[], |fields| fields);
    if block.priority.is_some() {
        flags |= PRIORITY;
    }
    let first = block.fragments.len().min(FRAME - priority.len());
    let (first, rest) = block.fragments.split_at(first);
    if rest.is_empty() {
        flags |= END_HEADERS;
    }
    frame(HEADERS, flags, block.stream, &[priority, first], out);
    let mut continued = rest.chunks(FRAME).peekable();
    while let Some(chunk) = continued.next() {
        frame(
            CONTINUATION,
            if continued.peek().is_none() {
                END_HEADERS
            } else {
                0
            },
            block.stream,
            &[chunk],
            out,
        );
    }
}

/// `parts` are at most [`FRAME`] bytes together.
fn frame(kind: u8, flags: u8, stream: [u8; 4], parts: &[&[u8]], out: &mut Vec<u8>) {
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
