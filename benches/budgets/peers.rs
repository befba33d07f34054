//! The programs of others that are measured beside ours (`benches/build-peers`): where they are, and
//! those that are scraped over HTTP.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::figures::Figures;
use crate::process::Running;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The folder of the programs.
pub struct Peers(pub Option<PathBuf>);

impl Peers {
    /// Says so if the program is not there: it was not built, or not for this run.
    pub fn find(&self, program: &str, figures: &Figures) -> Option<PathBuf> {
        let path = self.0.as_ref().map(|folder| folder.join(program));
        let found = path.filter(|path| path.is_file());
        if found.is_none() {
            figures.remark(&format!("{program} is not here: not measured beside it"));
        }
        found
    }
}

/// An address on which nothing listens now.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .context("finding a port")
}

/// A Prometheus exporter.
pub struct Exporter {
    name: &'static str,
    running: Running,
    address: SocketAddr,
}

impl Exporter {
    /// `command` gets the address as its last argument.
    pub async fn start(name: &'static str, mut command: Command) -> anyhow::Result<Exporter> {
        let address = free_address()?;
        command.arg(format!("--web.listen-address={address}"));
        let mut exporter = Exporter { name, running: Running::start(&mut command)?, address };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(address).await.is_err() {
            exporter.must_run()?;
            if Instant::now() > deadline {
                bail!("{name} does not listen within {START_TIMEOUT:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(exporter)
    }

    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    pub fn must_run(&mut self) -> anyhow::Result<()> {
        self.running.must_run()
    }

    /// `None`: not within `limit`.
    pub async fn scrape(&mut self, limit: Duration) -> anyhow::Result<Option<(String, Duration)>> {
        self.must_run()?;
        let scraped = scrape(self.address, limit).await;
        scraped.with_context(|| format!("scraping {}", self.name))
    }
}

/// The text of one scrape over a new connection, and how long it took; `None`: not within `limit`.
pub async fn scrape(
    address: SocketAddr,
    limit: Duration,
) -> anyhow::Result<Option<(String, Duration)>> {
    let began = Instant::now();
    let scraped = async {
        let mut stream = TcpStream::connect(address).await.context("connecting")?;
        // In this version the answer is not cut into chunks.
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n")
            .await
            .context("writing the request")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.context("reading the answer")?;
        let took = began.elapsed();
        ensure!(text.split(' ').nth(1) == Some("200"), "the answer is {:?}", text.lines().next());
        Ok((text, took))
    };
    tokio::time::timeout(limit, scraped).await.ok().transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_scrape_that_is_not_answered_in_time_is_none_and_an_error_page_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let short = Duration::from_millis(50);
        let answer = scrape(address, short).await.expect("no error");
        assert!(answer.is_none(), "{answer:?}");
        std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            // The first connection is the one that was given up.
            for stream in listener.incoming().skip(1).flatten() {
                let mut stream = stream;
                let mut request = [0; 1024];
                let _read = stream.read(&mut request).expect("a request");
                stream.write_all(b"HTTP/1.1 500 Oops\r\n\r\n").expect("a reader");
            }
        });
        let error = scrape(address, START_TIMEOUT).await.unwrap_err();
        assert!(error.to_string().contains("500 Oops"), "{error:#}");
    }
}
