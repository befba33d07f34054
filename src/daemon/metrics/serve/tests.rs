use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;
use diskvitals_exposition::server::{MAX_HEADER_BYTES, RETRY_INTERVAL};

fn node() -> Node {
    Node {
        name: "n".into(),
        kernel: "6.1".into(),
        version: "1".into(),
        started: Timestamp::UNIX_EPOCH,
    }
}

/// A server on a free port, its sender, and how to end it.
struct Running {
    address: std::net::SocketAddr,
    sender: watch::Sender<Arc<Snapshot>>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

async fn start(settled: bool, limits: Limits) -> Running {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("an address");
    let (sender, snapshots) = watch::channel(Arc::new(Snapshot { settled, ..Snapshot::default() }));
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(serve(
        Incoming::new(socket, address.to_string()),
        node(),
        snapshots,
        SocketRefusals::default(),
        limits,
        async {
            // Its sender has gone: the end as well.
            let _ = stopped.await;
        },
    ));
    Running { address, sender, stop, ended }
}

async fn ask(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("is answered");
    answer
}

fn get(path: &str, accept: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n")
}

#[tokio::test]
async fn a_scraper_gets_the_format_with_the_higher_weight() {
    let running = start(true, Limits::default()).await;
    let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    for (accept, newer) in [
        (prometheus, true),
        ("application/openmetrics-text", true),
        ("*/*", false),
        ("text/plain", false),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.5", false),
        ("application/openmetrics-text;q=0", false),
        ("application/json", false),
    ] {
        let answer = ask(running.address, &get("/metrics", accept)).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(
            answer.contains(
                "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
            ),
            newer,
            "{accept}"
        );
        assert_eq!(
            answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            !newer,
            "{accept}"
        );
        assert_eq!(answer.ends_with("# EOF\n"), newer, "{accept}");
        assert!(answer.contains("\ndiskvitals_build_info{version=\"1\"} 1\n"), "{answer}");
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let running = start(true, Limits::default()).await;
    assert!(ask(running.address, &get("/", "*/*")).await.starts_with("HTTP/1.1 404 "));
    assert!(
        ask(running.address, &get("/metrics/../etc", "*/*")).await.starts_with("HTTP/1.1 404 ")
    );
    let posted =
        ask(running.address, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            .await;
    assert!(
        posted.starts_with("HTTP/1.1 405 ") && posted.contains("\r\nallow: GET, HEAD\r\n"),
        "{posted}"
    );
    let head = ask(running.address, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let long = format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(2 * MAX_HEADER_BYTES)
    );
    let mut stream = TcpStream::connect(running.address).await.expect("connects");
    // It may be cut off before it has said it all.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn scrapes_are_refused_before_the_first_full_snapshot() {
    let running = start(
        false,
        Limits { first_snapshot_timeout: Duration::from_millis(20), ..Limits::default() },
    )
    .await;
    assert!(ask(running.address, &get("/metrics", "*/*")).await.starts_with("HTTP/1.1 503 "));

    let running = start(false, Limits::default()).await;
    let asked = tokio::spawn(async move { ask(running.address, &get("/metrics", "*/*")).await });
    running.sender.send_replace(Arc::new(Snapshot { settled: true, ..Snapshot::default() }));
    assert!(asked.await.expect("answered").starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_silent_connection_times_out_or_yields_its_place() {
    let limits = Limits {
        connections: 2,
        connection_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let running = start(true, limits).await;
    let silent =
        [TcpStream::connect(running.address).await, TcpStream::connect(running.address).await];
    // Both places are taken: this one gets the first.
    assert!(ask(running.address, &get("/metrics", "*/*")).await.starts_with("HTTP/1.1 200 "));
    for stream in silent {
        let mut rest = Vec::new();
        stream.expect("connected").read_to_end(&mut rest).await.expect("closed");
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
}

/// Clients that send no request, a request byte by byte, or do not read the answer.
#[tokio::test]
async fn slow_clients_at_the_same_address_starve_no_scrape() {
    let limits = Limits {
        connections: 16,
        connection_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let running = start(true, limits).await;
    let mut slow = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(running.address).await.expect("connects");
        let part = match number % 3 {
            0 => String::new(),
            1 => "GET /metrics HTTP/1.1\r\nHost: x\r\nX: a".to_owned(),
            _ => get("/metrics", "*/*"),
        };
        // It may be cut off already.
        let _ = stream.write_all(part.as_bytes()).await;
        slow.push(stream);
        if number % 10 == 0 {
            let request = get("/metrics", "*/*");
            let asked = ask(running.address, &request);
            let answer = tokio::time::timeout(Duration::from_secs(5), asked).await;
            assert!(answer.expect("in time").starts_with("HTTP/1.1 200 "));
        }
    }
}

/// As long as the daemon works for them, connections are not replaced: a newcomer waits.
#[tokio::test]
async fn a_scrape_waits_while_all_others_are_being_answered() {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("an address");
    let limits = Limits { connections: 2, ..Limits::default() };
    let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
    let (go, going) = watch::channel(false);
    let respond = move |_| {
        let (begun, mut going) = (begun.clone(), going.clone());
        async move {
            begun.send(()).expect("the test waits");
            going.wait_for(|go| *go).await.expect("the test goes on");
            plain_response(StatusCode::OK, "x")
        }
    };
    let incoming = Incoming::new(socket, address.to_string());
    let serving = tokio::spawn(serve_with(incoming, limits, respond, std::future::pending()));
    let scrape = || tokio::spawn(async move { ask(address, &get("/metrics", "*/*")).await });
    let mut scrapes = Vec::new();
    for _ in 0..2 {
        scrapes.push(scrape());
        beginning.recv().await.expect("an answer begins");
    }
    scrapes.push(scrape());
    let is_third_waiting = tokio::time::timeout(RETRY_INTERVAL * 5, beginning.recv()).await;
    assert!(is_third_waiting.is_err(), "there are two places");
    go.send_replace(true);
    for scrape in scrapes {
        assert!(scrape.await.expect("ends").starts_with("HTTP/1.1 200 "));
    }
    serving.abort();
}

#[tokio::test]
async fn shutdown_waits_for_connections_only_briefly() {
    let running =
        start(true, Limits { drain_timeout: Duration::from_millis(50), ..Limits::default() }).await;
    let silent = TcpStream::connect(running.address).await.expect("connects");
    assert!(ask(running.address, &get("/metrics", "*/*")).await.starts_with("HTTP/1.1 200 "));
    drop(running.stop);
    tokio::time::timeout(Duration::from_secs(5), running.ended)
        .await
        .expect("in time")
        .expect("ends");
    assert!(TcpStream::connect(running.address).await.is_err());
    drop(silent);
}

async fn ask_bytes(address: std::net::SocketAddr, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    stream.write_all(request.as_bytes()).await.expect("is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("is answered");
    answer
}

#[tokio::test]
async fn gzip_is_sent_only_to_scrapers_that_accept_it() {
    let running = start(true, Limits::default()).await;
    for (accepted, packed) in [
        ("Accept-Encoding: gzip\r\n", true),
        ("Accept-Encoding: deflate, GZIP;q=0.5\r\n", true),
        ("Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n", true),
        ("Accept-Encoding: gzip;q=0\r\n", false),
        ("Accept-Encoding: identity\r\n", false),
        ("", false),
    ] {
        let answer = ask_bytes(
            running.address,
            &format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accepted}\r\n"),
        )
        .await;
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("headers");
        let (head, body) = (String::from_utf8_lossy(&answer[..head]), &answer[head + 4..]);
        assert_eq!(head.contains("content-encoding: gzip"), packed, "{accepted}{head}");
        assert!(head.contains("vary: accept, accept-encoding"), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert_eq!(body.starts_with(&[0x1f, 0x8b]), packed, "{accepted}");
        assert_eq!(body.starts_with(b"# HELP "), !packed, "{accepted}");
    }
}

#[tokio::test]
async fn a_removed_drive_is_in_no_scrape_after_the_next_snapshot() {
    let running = start(true, Limits::default()).await;
    let with_one = crate::metrics::view::tests::snapshot_with_drive("GONE-SOON");
    for (snapshot, told) in [
        (with_one.clone(), true),
        (Snapshot { settled: true, ..Snapshot::default() }, false),
        (with_one, true),
    ] {
        running.sender.send_replace(Arc::new(snapshot));
        // Twice: once written, once kept.
        for _ in 0..2 {
            for accept in ["application/openmetrics-text", "text/plain"] {
                assert_eq!(
                    ask(running.address, &get("/metrics", accept)).await.contains("GONE-SOON"),
                    told
                );
            }
        }
    }
}
