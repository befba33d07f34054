//! Wraps a client's connection and replaces an invalid HTTP/2 `:authority` by a valid one.
//!
//! Reason: gRPC in Go that dials a bare socket path sends that path, percent-encoded, as
//! `:authority: %2Fvar%2Flib%2F…`. The kubelet does so when it calls a plugin's registration
//! socket. The crate h2 refuses this request with PROTOCOL_ERROR before any service reads it and
//! has no option to accept it; no crate rewrites a header block in front of h2. This module
//! therefore rewrites the client's bytes before h2 reads them.
//!
//! It also ends a connection with more control frames and resets than calls need (`quota::frame_budget`).
//!
//! In: a client's connection. Out: the same connection; bytes to the client are not parsed. The
//! module does not depend on gRPC, CSI or the caller.

pub mod frames;

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tonic::transport::server::Connected;

use crate::authority::frames::{FrameError, FrameRewriter};
use diskvitals_quota::frame_budget::FrameBudget;

/// Bytes read from the client at once. The buffer is on the stack: an idle connection needs none.
const READ_CHUNK: usize = 8 << 10;
/// Maximum number of bytes prepared ahead of the server, plus one header block. HPACK can expand
/// one byte to many kilobytes.
const READ_AHEAD: usize = 32 << 10;

/// A connection as the server reads it.
#[derive(Debug)]
pub(crate) struct AuthorityRewriter<S> {
    connection: S,
    frames: FrameRewriter,
    /// Bytes that are read but not processed yet, because enough bytes are ready.
    unprocessed: Vec<u8>,
    /// Bytes for the server, which has read them up to `consumed`.
    ready: Vec<u8>,
    consumed: usize,
    /// Returned after all ready bytes.
    error: Option<FrameError>,
    budget: FrameBudget,
}

impl<S> AuthorityRewriter<S> {
    pub(crate) fn new(connection: S) -> AuthorityRewriter<S> {
        AuthorityRewriter {
            connection,
            frames: FrameRewriter::default(),
            unprocessed: Vec::new(),
            ready: Vec::new(),
            consumed: 0,
            error: None,
            budget: FrameBudget::default(),
        }
    }

    fn process(&mut self, bytes: &[u8]) {
        match self.frames.rewrite(bytes, &mut self.ready, READ_AHEAD) {
            Ok(seen) => self.unprocessed = bytes[seen..].to_vec(),
            Err(malformed) => {
                tracing::debug!(%malformed, "a client's bytes are not HTTP/2: its connection is closed");
                self.error = Some(malformed);
                self.unprocessed = Vec::new();
            }
        }
    }

    fn note_written(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.budget.sent(*bytes);
        }
    }

    /// Copies ready bytes. Returns true if there were any.
    fn copy_ready(&mut self, to: &mut ReadBuf<'_>) -> bool {
        let left = &self.ready[self.consumed..];
        if left.is_empty() {
            return false;
        }
        let now = left.len().min(to.remaining());
        to.put_slice(&left[..now]);
        self.consumed += now;
        if self.consumed == self.ready.len() {
            self.consumed = 0;
            self.ready.clear();
            self.ready.shrink_to(READ_CHUNK);
        }
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityRewriter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if to.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if this.copy_ready(to) {
                return Poll::Ready(Ok(()));
            }
            if let Some(malformed) = this.error {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, malformed)));
            }
            if !this.unprocessed.is_empty() {
                let unread = std::mem::take(&mut this.unprocessed);
                this.process(&unread);
                continue;
            }
            let mut chunk = [const { MaybeUninit::uninit() }; READ_CHUNK];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            ready!(Pin::new(&mut this.connection).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Err(flood) = this.budget.received(chunk.filled(), Instant::now()) {
                tracing::debug!(%flood, "a client's connection is closed");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, flood)));
            }
            this.process(chunk.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AuthorityRewriter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.note_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(cx, bytes);
        self.note_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }
}

impl<S: Connected> Connected for AuthorityRewriter<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::authority::frames::PREFACE;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[tokio::test]
    async fn a_flood_of_control_frames_ends_the_connection() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let mut server = AuthorityRewriter::new(server);
        client.write_all(PREFACE).await.expect("open");
        let flooding = tokio::spawn(async move {
            let pings = frame(6, &[0; 8]).repeat(100);
            while client.write_all(&pings).await.is_ok() {}
        });
        let ended = tokio::io::copy(&mut server, &mut tokio::io::sink()).await;
        let error = ended.expect_err("it is ended");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
        drop(server);
        flooding.await.expect("the client sees the end");
    }

    async fn read_through(
        bytes: Vec<u8>,
        pipe: usize,
        at_once: usize,
    ) -> (Vec<u8>, io::Result<()>) {
        let (mut client, server) = tokio::io::duplex(pipe);
        let writing = tokio::spawn(async move {
            // The reader ends early where the bytes are malformed.
            let _ = client.write_all(&bytes).await;
        });
        let mut server = AuthorityRewriter::new(server);
        let (mut all, mut chunk) = (Vec::new(), vec![0; at_once]);
        let ended = loop {
            match server.read(&mut chunk).await {
                Ok(0) => break Ok(()),
                Ok(n) => all.extend_from_slice(&chunk[..n]),
                Err(error) => break Err(error),
            }
        };
        drop(server);
        writing.await.expect("written");
        (all, ended)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn data_arrives_unchanged_whatever_is_read_at_once(payload in prop::collection::vec(any::<u8>(), 0..40_000), pipe in 1usize..20_000, at_once in 1usize..9000) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let bytes = [PREFACE, &frame(0x4, &[]), &frame(0x0, &payload)].concat();
            let (arrived, ended) = runtime.block_on(read_through(bytes.clone(), pipe, at_once));
            prop_assert!(ended.is_ok());
            prop_assert_eq!(arrived, bytes);
        }
    }

    #[tokio::test]
    async fn bytes_before_malformed_ones_arrive_then_reading_fails() {
        let good = [PREFACE, &frame(0x6, &[7; 8])].concat();
        // A header block that refers to an entry of a table that is empty.
        let mut headers = frame(0x1, &[0xff, 0x70]);
        let (arrived, ended) =
            read_through([good.clone(), headers.clone()].concat(), 1000, 1000).await;
        assert!(ended.is_ok(), "without END_HEADERS the rest of the block is waited for");
        assert_eq!(arrived, good);

        headers[4] = 0x4;
        let (arrived, ended) = read_through([good.clone(), headers].concat(), 1000, 1000).await;
        assert_eq!(ended.expect_err("malformed").kind(), io::ErrorKind::InvalidData);
        assert_eq!(arrived, good);
    }

    #[tokio::test]
    async fn read_ahead_is_bounded_by_what_the_server_reads() {
        // 60 blocks, each of a kilobyte that HPACK makes 64 kB of.
        let mut decoded_large = vec![0x40, 1, b'n', 0x7f, 0x81, 0x06];
        decoded_large.extend([b'v'; 896]);
        decoded_large.extend([0xbe; 60]);
        decoded_large.extend([0x01, 1, b'%']);
        let mut headers = frame(0x1, &decoded_large);
        headers[4] = 0x4;
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(PREFACE).await.expect("written");
        for _ in 0..60 {
            client.write_all(&headers).await.expect("written");
        }
        let mut server = AuthorityRewriter::new(server);
        let mut byte = [0];
        while server.read(&mut byte).await.expect("well formed") == 1
            && server.ready.len() < READ_AHEAD
        {
            assert!(server.unprocessed.len() <= READ_CHUNK);
        }
        assert!(
            server.ready.len() < READ_AHEAD + frames::MAX_HEADER_BLOCK + 1000,
            "{}",
            server.ready.len()
        );
    }
}
