use loona_hpack::Encoder;
use proptest::prelude::*;

use super::*;

/// A frame as a client may send it.
#[derive(Clone, Debug)]
enum ClientFrame {
    Headers {
        stream: u8,
        list: HeaderList,
        padding: Option<u8>,
        priority: Option<[u8; 5]>,
        end_stream: bool,
        cuts: Vec<usize>,
    },
    Other {
        kind: u8,
        flags: u8,
        stream: u8,
        payload: Vec<u8>,
    },
}

fn raw(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(kind, flags, [0, 0, 0, stream], &[payload], &mut out);
    out
}

/// One encoder for a connection, as a client has it: it refers to what it has sent before.
fn client_bytes(frames: &[ClientFrame]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut bytes = PREFACE.to_vec();
    for sent in frames {
        match sent {
            ClientFrame::Other { kind, flags, stream, payload } => {
                bytes.extend(raw(*kind, *flags, *stream, payload))
            }
            ClientFrame::Headers { stream, list, padding, priority, end_stream, cuts } => {
                let block = encoder
                    .encode(list.iter().map(|(name, value)| (name.as_slice(), value.as_slice())));
                let mut pieces = Vec::new();
                let mut rest = block.as_slice();
                for cut in cuts {
                    let (piece, after) = rest.split_at(*cut % (rest.len() + 1));
                    pieces.push(piece);
                    rest = after;
                }
                pieces.push(rest);
                // No frame is longer than a server takes, with its padding and priority.
                let pieces: Vec<&[u8]> = pieces
                    .iter()
                    .flat_map(|piece| {
                        if piece.is_empty() {
                            vec![*piece]
                        } else {
                            piece.chunks(MAX_FRAME_SIZE - 300).collect()
                        }
                    })
                    .collect();
                let last = pieces.len() - 1;
                let mut flags = if last == 0 { END_HEADERS } else { 0 };
                let mut payload = Vec::new();
                if let Some(padding) = padding {
                    flags |= PADDED;
                    payload.push(*padding);
                }
                if let Some(fields) = priority {
                    flags |= PRIORITY;
                    payload.extend(fields);
                }
                payload.extend(pieces[0]);
                payload.extend(vec![0; usize::from(padding.unwrap_or(0))]);
                bytes.extend(raw(
                    HEADERS,
                    flags | if *end_stream { END_STREAM } else { 0 },
                    *stream,
                    &payload,
                ));
                for (at, piece) in pieces.iter().enumerate().skip(1) {
                    bytes.extend(raw(
                        CONTINUATION,
                        if at == last { END_HEADERS } else { 0 },
                        *stream,
                        piece,
                    ));
                }
            }
        }
    }
    bytes
}

/// What a server reads: every frame that is not of a header block as it is, every header block
/// decoded, with its stream, END_STREAM and priority.
#[derive(Debug, PartialEq)]
enum ServerFrame {
    Headers { stream: [u8; 4], list: HeaderList, end_stream: bool, priority: Option<[u8; 5]> },
    Other(Vec<u8>),
}

/// A header block so far, its stream, its first flags, its priority.
type OpenBlock = (Vec<u8>, [u8; 4], u8, Option<[u8; 5]>);

/// Written apart from the code it tests.
fn server_reads(bytes: &[u8]) -> Vec<ServerFrame> {
    let mut decoder = Decoder::new();
    let mut rest = bytes.strip_prefix(PREFACE).expect("the preface");
    let mut read = Vec::new();
    let mut open: Option<OpenBlock> = None;
    while !rest.is_empty() {
        let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        let (kind, flags, stream) = (rest[3], rest[4], rest[5..9].try_into().expect("four"));
        let (whole, after) = rest.split_at(FRAME_HEADER_LEN + length);
        rest = after;
        let mut payload = &whole[FRAME_HEADER_LEN..];
        match kind {
            HEADERS => {
                assert!(open.is_none() && length <= MAX_FRAME_SIZE);
                let mut padding = 0;
                if flags & PADDED != 0 {
                    padding = usize::from(payload[0]);
                    payload = &payload[1..];
                }
                let mut priority = None;
                if flags & PRIORITY != 0 {
                    priority = Some(payload[..5].try_into().expect("five"));
                    payload = &payload[5..];
                }
                open = Some((payload[..payload.len() - padding].to_vec(), stream, flags, priority));
            }
            CONTINUATION => {
                let (block, of, ..) = open.as_mut().expect("open");
                assert!(*of == stream && length <= MAX_FRAME_SIZE);
                block.extend(payload);
            }
            _ => {
                assert!(open.is_none());
                read.push(ServerFrame::Other(whole.to_vec()));
            }
        }
        if matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0 {
            let (block, stream, first, priority) = open.take().expect("open");
            let list = decoder.decode(&block).expect("HPACK");
            read.push(ServerFrame::Headers {
                stream,
                list,
                end_stream: first & END_STREAM != 0,
                priority,
            });
        }
    }
    assert!(open.is_none());
    read
}

fn rewritten(bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::new();
    assert_eq!(FrameRewriter::default().rewrite(bytes, &mut out, usize::MAX)?, bytes.len());
    Ok(out)
}

/// As [`through`], byte groups of the given sizes in turn, and no more than `enough` made ready at
/// once.
fn rewritten_in_pieces(
    bytes: &[u8],
    sizes: &[usize],
    enough: usize,
) -> Result<Vec<u8>, FrameError> {
    let (mut frames, mut all, mut rest) = (FrameRewriter::default(), Vec::new(), bytes);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let mut out = Vec::new();
        let seen = frames.rewrite(&rest[..(*size).min(rest.len())], &mut out, enough)?;
        all.extend(out);
        rest = &rest[seen..];
    }
    Ok(all)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b":path".to_vec()),
        Just(b":method".to_vec()),
        Just(b"te".to_vec()),
        Just(b"grpc-timeout".to_vec()),
        "[a-z-]{1,12}".prop_map(String::into_bytes),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 100..400),
        1 => (0u8..=255).prop_map(|byte| vec![byte; 20_000]),
    ]
}

fn headers(
    authority: impl Strategy<Value = Vec<u8>> + 'static,
) -> impl Strategy<Value = ClientFrame> {
    (
        1u8..5,
        prop::collection::vec((name(), value()), 0..6),
        prop::option::weighted(0.8, authority),
        prop::option::of(any::<u8>()),
        prop::option::of(any::<[u8; 5]>()),
        any::<bool>(),
        prop::collection::vec(any::<usize>(), 0..4),
    )
        .prop_map(|(stream, mut list, authority, padding, priority, end_stream, cuts)| {
            if let Some(authority) = authority {
                list.insert(list.len() / 2, (AUTHORITY.to_vec(), authority));
            }
            ClientFrame::Headers { stream, list, padding, priority, end_stream, cuts }
        })
}

fn other() -> impl Strategy<Value = ClientFrame> {
    let kind = any::<u8>().prop_filter("of no header block", |kind| {
        ![HEADERS, PUSH_PROMISE, CONTINUATION].contains(kind)
    });
    (kind, any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(
        |(kind, flags, stream, payload)| ClientFrame::Other { kind, flags, stream, payload },
    )
}

fn valid() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"localhost".to_vec()),
        Just(b"[::1]:80".to_vec()),
        "[a-z]{1,9}(:[1-9][0-9]{0,3})?".prop_map(String::into_bytes)
    ]
}

fn any_authority() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        valid(),
        Just(b"%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx-reg.sock".to_vec()),
        prop::collection::vec(any::<u8>(), 0..30)
    ]
}

fn connection(
    authority: impl Strategy<Value = Vec<u8>> + Clone + 'static,
) -> impl Strategy<Value = Vec<ClientFrame>> {
    prop::collection::vec(prop_oneof![headers(authority), other()], 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_split_of_the_stream_changes_nothing(
        frames in connection(any_authority().boxed()),
        sizes in prop::collection::vec(1usize..200, 1..20),
        enough in 1usize..1000,
    ) {
        let bytes = client_bytes(&frames);
        let whole = rewritten(&bytes).expect("well formed");
        prop_assert_eq!(rewritten_in_pieces(&bytes, &sizes, enough).expect("well formed"), whole);
    }

    #[test]
    fn a_connection_whose_authorities_are_valid_goes_through_byte_for_byte(frames in connection(valid().boxed())) {
        let bytes = client_bytes(&frames);
        prop_assert_eq!(rewritten(&bytes).expect("well formed"), bytes);
    }

    #[test]
    fn only_invalid_authorities_are_replaced(frames in connection(any_authority().boxed())) {
        let bytes = client_bytes(&frames);
        let mut expected = server_reads(&bytes);
        for read in &mut expected {
            if let ServerFrame::Headers { list, .. } = read {
                for (name, value) in list {
                    if name == AUTHORITY && Authority::try_from(value.as_slice()).is_err() {
                        *value = b"localhost".to_vec();
                    }
                }
            }
        }
        prop_assert_eq!(server_reads(&rewritten(&bytes).expect("well formed")), expected);
    }

    #[test]
    fn no_bytes_make_it_panic_or_differ_by_how_they_are_cut(
        bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(4), Just(9), Just(0x2c), any::<u8>()], 0..600),
        sizes in prop::collection::vec(1usize..50, 1..10),
    ) {
        let bytes = [PREFACE, &bytes].concat();
        prop_assert_eq!(rewritten_in_pieces(&bytes, &sizes, usize::MAX).err(), rewritten(&bytes).err());
    }

    #[test]
    fn no_header_block_makes_it_panic(block in prop::collection::vec(any::<u8>(), 0..300)) {
        // Well formed or not: an answer either way.
        let _ = rewritten(&[PREFACE, &raw(HEADERS, END_HEADERS, 1, &block)].concat());
    }
}

fn malformed(frames: &[Vec<u8>]) -> FrameError {
    rewritten(&[PREFACE.to_vec(), frames.concat()].concat()).expect_err("malformed")
}

#[test]
fn a_stream_that_is_not_http2_is_refused_at_its_first_wrong_byte() {
    assert_eq!(rewritten(b"GET / HTTP/1.1\r\n"), Err(FrameError::Preface));
    assert_eq!(rewritten(b"PRI * HTTP/1"), Err(FrameError::Preface));
    assert_eq!(rewritten(b"PRI * HTTP/2"), Ok(b"PRI * HTTP/2".to_vec()));
}

#[test]
fn a_header_block_must_be_continued_by_its_own_stream_and_nothing_else() {
    let open = raw(HEADERS, 0, 1, &[0x82]);
    assert_eq!(
        malformed(&[open.clone(), raw(0, 0, 1, b"data")]),
        FrameError::ExpectedContinuation(0)
    );
    assert_eq!(
        malformed(&[open.clone(), raw(CONTINUATION, END_HEADERS, 3, &[0x84])]),
        FrameError::ExpectedContinuation(CONTINUATION)
    );
    assert_eq!(malformed(&[open.clone(), open]), FrameError::ExpectedContinuation(HEADERS));
    assert_eq!(
        malformed(&[raw(CONTINUATION, END_HEADERS, 1, &[0x82])]),
        FrameError::UnexpectedContinuation
    );
    assert_eq!(
        malformed(&[raw(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82])]),
        FrameError::PushPromise
    );
}

#[test]
fn headers_too_short_for_what_its_flags_announce_are_refused() {
    assert_eq!(malformed(&[raw(HEADERS, END_HEADERS | PADDED, 1, &[])]), FrameError::TooShort);
    assert_eq!(
        malformed(&[raw(HEADERS, END_HEADERS | PADDED, 1, &[2, 0x82])]),
        FrameError::TooShort
    );
    assert_eq!(
        malformed(&[raw(HEADERS, END_HEADERS | PRIORITY, 1, &[0, 0, 0, 0])]),
        FrameError::TooShort
    );
    assert_eq!(
        malformed(&[raw(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &[1, 0, 0, 0, 0, 0])]),
        FrameError::TooShort
    );
}

#[test]
fn header_blocks_are_bounded_as_sent_and_as_decoded() {
    // As sent: frames without end, also empty ones.
    let mut frames = vec![raw(HEADERS, 0, 1, &[])];
    frames.extend(vec![raw(CONTINUATION, 0, 1, &[]); MAX_HEADER_BLOCK / FRAME_HEADER_LEN]);
    assert_eq!(malformed(&frames), FrameError::TooLarge);
    assert_eq!(
        malformed(&[raw(HEADERS, END_HEADERS, 1, &vec![0x82; MAX_HEADER_BLOCK])]),
        FrameError::TooLarge
    );
    // As decoded: an entry of 3 kB, and references to it of one byte each.
    let mut block = vec![0x40, 1, b'n', 0x7f, 0xf9, 0x16];
    block.extend([b'v'; 3064]);
    block.extend([0xbe; 100]);
    assert_eq!(malformed(&[raw(HEADERS, END_HEADERS, 1, &block)]), FrameError::TooLarge);
}

#[test]
fn a_table_larger_than_was_allowed_is_refused() {
    // A dynamic table size update to 8192.
    let refused = malformed(&[raw(HEADERS, END_HEADERS, 1, &[0x3f, 0xe1, 0x3f, 0x82])]);
    assert_eq!(
        refused,
        FrameError::Hpack(loona_hpack::decoder::DecoderError::InvalidMaxDynamicSize)
    );
}

/// What gRPC for Go (google.golang.org/grpc 1.83.1) sent when it dialled `/tmp/r/x-reg.sock` as the
/// kubelet dials (grpc.DialContext with the bare path), up to the end of its first request.
const GRPC_GO_BARE_PATH_DIAL: &str = concat!(
    "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a0000000400000000000000000401000000000000690104000000018386459c62ba2d98d558598c84d83498f52fb4b31909b0",
    "6931ea63115392a94f41915458534d6a8b0d8a8b0f95ac2ccba0e4eb5f8b1d75d0620d263d4c4d65647a8a9acac8b4c7602bbccae140027465864d833505b11f40899acac8b24d494f6a",
    "7f867df7df03ad5b0000050001000000010000000000",
);

#[test]
fn a_request_of_grpc_for_go_that_dialled_a_bare_path_names_localhost_and_is_unchanged_otherwise() {
    let bytes: Vec<u8> = (0..GRPC_GO_BARE_PATH_DIAL.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&GRPC_GO_BARE_PATH_DIAL[at..at + 2], 16).expect("hex"))
        .collect();
    let authority = |read: &[ServerFrame]| match &read[2] {
        ServerFrame::Headers { list, .. } => list
            .iter()
            .find(|(name, _)| name == AUTHORITY)
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned()),
        ServerFrame::Other(_) => None,
    };
    let before = server_reads(&bytes);
    assert_eq!(authority(&before).as_deref(), Some("%2Ftmp%2Fr%2Fx-reg.sock"));
    let mut after = server_reads(&rewritten(&bytes).expect("well formed"));
    assert_eq!(authority(&after).as_deref(), Some("localhost"));
    let ServerFrame::Headers { list, .. } = &mut after[2] else { panic!("not headers") };
    for (name, value) in list {
        if name == AUTHORITY {
            *value = b"%2Ftmp%2Fr%2Fx-reg.sock".to_vec();
        }
    }
    assert_eq!(after, before);
}
