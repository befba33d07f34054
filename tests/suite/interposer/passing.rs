//! All forwarded data, in both directions, is unchanged.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Frame;
use proptest::prelude::*;
use tokio::sync::{mpsc, oneshot};
use tonic::Code;

use super::fixture::{
    BOTH, Body, Error, PATIENCE, Setup, answer, body, channel, driver, framed, handler, headers,
};

/// One direction of an exchange.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    headers: HeaderMap,
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Side {
    fn body(&self, chunk: usize) -> Body {
        body(self.data.chunks(chunk).map(Bytes::copy_from_slice).collect(), self.trailers.clone())
    }

    async fn of<B>(headers: HeaderMap, incoming: B) -> Side
    where
        B: hyper::body::Body<Data = Bytes, Error = hyper::Error>,
    {
        let collected = incoming.collect().await.expect("whole");
        let trailers = collected.trailers().cloned();
        Side { headers, data: collected.to_bytes().to_vec(), trailers }
    }
}

fn metadata() -> impl Strategy<Value = HeaderMap> {
    let name = prop_oneof![
        Just("grpc-timeout".to_owned()),
        Just("user-agent".to_owned()),
        Just("grpc-encoding".to_owned()),
        Just("grpc-status-details-bin".to_owned()),
        Just("authorization".to_owned()),
        "x-[a-z0-9_.-]{1,12}",
        "x-[a-z]{1,8}-bin",
    ];
    prop::collection::vec((name, "[!-~][ -~]{0,40}[!-~]"), 0..8).prop_map(|pairs| {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                HeaderName::try_from(name).expect("a name"),
                HeaderValue::try_from(value).expect("a value"),
            );
        }
        map
    })
}

/// Bytes that are not messages, or arbitrary messages.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let junk = prop::collection::vec(any::<u8>(), 0..2000);
    prop_oneof![
        junk.clone(),
        junk.clone().prop_map(|bytes| framed(&bytes).to_vec()),
        prop::collection::vec(junk, 0..4)
            .prop_map(|many| many.iter().flat_map(|bytes| framed(bytes).to_vec()).collect()),
    ]
}

fn side() -> impl Strategy<Value = Side> {
    (metadata(), data(), prop::option::of(metadata())).prop_map(|(headers, data, trailers)| Side {
        headers,
        data,
        trailers,
    })
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        "/[A-Za-z0-9._-]{1,20}/[A-Za-z0-9]{1,20}",
        "/csi\\.v1\\.(Node|Controller|Identity|Future)/[A-Za-z]{1,20}",
        Just("/csi.v1.Node/NodeExpandVolume".to_owned()),
        // These answers are decoded and stay unchanged, because they contain no status.
        Just("/csi.v1.Node/NodeGetVolumeStats".to_owned()),
        Just("/csi.v1.Node/NodeStageVolume".to_owned()),
        Just("/csi.v1.Node/NodeGetCapabilities".to_owned()),
        Just("/csi.v1.Controller/ControllerListVolumeHealth".to_owned()),
        Just("/csi.v1.Identity/GetPluginInfo".to_owned()),
        Just("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned()),
    ]
}

/// The upstream's configured answer, and the received request: method, URI, and the rest.
#[derive(Default)]
struct Exchange {
    said: Option<Side>,
    seen: Option<(String, Side)>,
}

#[test]
fn whatever_is_sent_arrives_unchanged_both_ways() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let exchange: Arc<Mutex<Exchange>> = Arc::default();
    let (setup, _upstream, caller) = runtime.block_on(async {
        let setup = Setup::new(BOTH);
        let shared = Arc::clone(&exchange);
        let upstream = setup.upstream(handler(move |request| {
            let shared = Arc::clone(&shared);
            async move {
                let (head, incoming) = request.into_parts();
                if head.headers.get("user-agent").is_some_and(|agent| agent == "diskvitals-csi") {
                    // The interposer's own request for the driver's name.
                    return Ok(answer(&Err(Code::Unavailable)));
                }
                let seen = Side::of(head.headers, incoming).await;
                let mut shared = shared.lock().expect("whole");
                shared.seen = Some((format!("{} {}", head.method, head.uri), seen));
                let said = shared.said.clone().expect("set");
                let mut response = Response::new(said.body(700));
                *response.headers_mut() = said.headers;
                Ok(response)
            }
        }));
        let caller = setup.caller().await;
        (setup, upstream, caller)
    });
    proptest!(ProptestConfig::with_cases(200), |(path in path(), request in side(), answer in side(), chunk in 1usize..3000)| {
        exchange.lock().expect("whole").said = Some(answer.clone());
        let mut caller = caller.clone();
        let got = runtime.block_on(async {
            let mut sent = Request::new(request.body(chunk));
            *sent.method_mut() = http::Method::POST;
            *sent.uri_mut() = format!("http://localhost{path}").parse().expect("a path");
            *sent.headers_mut() = request.headers.clone();
            let (head, incoming) = caller.send(sent).await.expect("an answer").into_parts();
            Side::of(head.headers, incoming).await
        });
        let (line, seen) = exchange.lock().expect("whole").seen.take().expect("asked");
        prop_assert_eq!(line, format!("POST http://localhost{path}"));
        prop_assert_eq!(seen, request);
        prop_assert_eq!(got, answer);
    });
    drop(setup);
}

fn post(path: &str, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = format!("http://localhost{path}").parse().expect("a path");
    request
}

#[tokio::test]
async fn ten_megabytes_pass_both_ways_also_through_calls_that_are_looked_into() {
    let setup = Setup::new(BOTH);
    let _upstream = setup.upstream(handler(|request| async move {
        let data = request.into_body().collect().await?.to_bytes();
        let trailers = headers(&[("grpc-status", "0")]);
        Ok(Response::new(body(vec![data], Some(trailers))))
    }));
    let mut caller = setup.caller().await;
    // A field that CSI does not define, so that the message is valid.
    let filler = vec![0x2a; 10 << 20];
    let message = [&[0xc2, 0x3e, 0x80, 0x80, 0x80, 0x05][..], &filler].concat();
    for call in [
        "/other.Service/Call",
        "/csi.v1.Node/NodeStageVolume",
        "/csi.v1.Node/NodeGetVolumeStats",
        "/csi.v1.Controller/ListVolumes",
    ] {
        let answer =
            caller.send(post(call, body(vec![framed(&message)], None))).await.expect("an answer");
        let got = Side::of(HeaderMap::new(), answer.into_body()).await;
        assert!(got.data == framed(&message) && got.trailers.is_some(), "{call}");
    }
}

#[tokio::test]
async fn streams_flow_both_ways_at_once() {
    let setup = Setup::new(BOTH);
    // Each message returns before the next is sent.
    let _upstream = setup.upstream(handler(|request| async move {
        let (sender, answer) = channel();
        let mut incoming = request.into_body();
        tokio::spawn(async move {
            while let Some(Ok(frame)) = incoming.frame().await {
                if sender.send(Ok(frame)).await.is_err() {
                    return;
                }
            }
            // The caller may have disconnected.
            let _ = sender.send(Ok(Frame::trailers(headers(&[("grpc-status", "0")])))).await;
        });
        Ok(Response::new(answer))
    }));
    let mut caller = setup.caller().await;
    let (sender, streamed) = channel();
    let mut answer = caller
        .send(post("/a.B/Stream", streamed))
        .await
        .expect("headers before any message")
        .into_body();
    for round in 0u8..20 {
        sender.send(Ok(Frame::data(Bytes::from(vec![round; 100])))).await.expect("sends");
        let frame = answer.frame().await.expect("more").expect("no error");
        assert_eq!(frame.into_data().expect("data"), vec![round; 100]);
    }
    drop(sender);
    let last = answer.frame().await.expect("more").expect("no error");
    assert_eq!(last.into_trailers().expect("trailers"), headers(&[("grpc-status", "0")]));
}

/// Sends its name when it is dropped.
struct Dropped(mpsc::UnboundedSender<&'static str>, &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.0.send(self.1);
    }
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_upstream() {
    let setup = Setup::new(BOTH);
    let (events, mut happened) = mpsc::unbounded_channel();
    let _upstream = setup.upstream(handler(move |request| {
        let events = events.clone();
        async move {
            let stream = request.uri().path() == "/a.B/Stream";
            let _guard = Dropped(events.clone(), "given up");
            events.send("asked").expect("watched");
            if !stream {
                std::future::pending::<()>().await;
            }
            let (sender, answer) = channel();
            tokio::spawn(async move {
                let _guard = Dropped(events.clone(), "stream given up");
                sender.closed().await;
            });
            Ok(Response::new(answer))
        }
    }));
    let mut caller = setup.caller().await;
    for call in ["/a.B/Unary", "/csi.v1.Node/NodeGetVolumeStats", "/csi.v1.Node/NodeStageVolume"] {
        let mut sending = caller.clone();
        let waiting = tokio::spawn(async move {
            sending.send(post(call, body(vec![framed(b"")], None))).await.map(drop)
        });
        // The interposer also requests the driver's name.
        while tokio::time::timeout(PATIENCE, happened.recv()).await.expect("in time")
            != Some("asked")
        {}
        waiting.abort();
        while tokio::time::timeout(PATIENCE, happened.recv()).await.expect("in time")
            != Some("given up")
        {}
    }
    let answer =
        caller.send(post("/a.B/Stream", body(vec![framed(b"")], None))).await.expect("headers");
    drop(answer);
    while tokio::time::timeout(PATIENCE, happened.recv()).await.expect("in time")
        != Some("stream given up")
    {}
}

#[tokio::test]
async fn an_answer_of_trailers_only_stays_one() {
    let setup = Setup::new(BOTH);
    let refusal = headers(&[
        ("content-type", "application/grpc"),
        ("grpc-status", "9"),
        ("grpc-message", "held by %C3%A4"),
        ("grpc-status-details-bin", "CAkSBWRldGFpbA"),
    ]);
    let said = refusal.clone();
    let _upstream = setup.upstream(handler(move |request| {
        let said = said.clone();
        async move {
            request.into_body().collect().await?;
            let mut response = Response::new(body(Vec::new(), None));
            *response.headers_mut() = said;
            Ok(response)
        }
    }));
    let mut caller = setup.caller().await;
    for call in [
        "/a.B/C",
        "/csi.v1.Node/NodeGetVolumeHealth",
        "/csi.v1.Node/NodeGetVolumeStats",
        "/csi.v1.Node/NodePublishVolume",
    ] {
        let answer =
            caller.send(post(call, body(vec![framed(b"")], None))).await.expect("an answer");
        let (head, incoming) = answer.into_parts();
        let got = Side::of(head.headers, incoming).await;
        assert_eq!(
            got,
            Side { headers: refusal.clone(), data: Vec::new(), trailers: None },
            "{call}"
        );
    }
}

#[tokio::test]
async fn an_upstream_that_is_away_is_unavailable_and_comes_back_by_itself() {
    let setup = Setup::new(BOTH);
    let mut caller = setup.caller().await;
    let (code, message) = caller.call("Node/NodeGetInfo", b"").await.expect_err("nobody there");
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("connecting to the upstream driver"), "{message}");
    for call in [
        "Node/NodeGetVolumeStats",
        "Node/NodeGetVolumeHealth",
        "Node/NodeGetCapabilities",
        "Node/NodeStageVolume",
    ] {
        assert_eq!(
            caller.call(call, &[0x0a, 1, b'v']).await.expect_err("nobody there").0,
            Code::Unavailable,
            "{call}"
        );
    }
    for round in 0..3 {
        let (handler, _) = driver(&[("Node/NodeGetInfo", Ok(vec![0x0a, 1, b'n']))]);
        let upstream = setup.upstream(handler);
        for _ in 0..5 {
            assert_eq!(
                caller.call("Node/NodeGetInfo", b"").await,
                Ok(vec![0x0a, 1, b'n']),
                "round {round}"
            );
        }
        assert_eq!(upstream.connections.load(Ordering::SeqCst), 1, "one connection for all calls");
        drop(upstream);
        std::fs::remove_file(setup.socket()).expect("there");
        let end = tokio::time::Instant::now() + PATIENCE;
        while caller.call("Node/NodeGetInfo", b"").await.is_ok() {
            assert!(tokio::time::Instant::now() < end, "the upstream does not go");
        }
    }
}

#[tokio::test]
async fn many_callers_share_one_connection_to_the_upstream() {
    let setup = Setup::new(BOTH);
    let (handler, _) = driver(&[("Node/NodeGetInfo", Ok(vec![0x0a, 1, b'n']))]);
    let upstream = setup.upstream(handler);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut caller = setup.caller().await;
        calls.spawn(async move { caller.call("Node/NodeGetInfo", b"").await });
    }
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer.expect("no panic"), Ok(vec![0x0a, 1, b'n']));
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_during_an_answer_ends_it_as_unavailable() {
    let setup = Setup::new(BOTH);
    let (ready, waiting) = oneshot::channel::<()>();
    let ready = Mutex::new(Some(ready));
    let upstream = setup.upstream(handler(move |_| {
        let (sender, answer) = channel();
        let ready = ready.lock().expect("whole").take();
        async move {
            tokio::spawn(async move {
                sender.send(Ok(Frame::data(framed(b"part")))).await.expect("sends");
                if let Some(ready) = ready {
                    ready.send(()).expect("waited for");
                }
                sender.closed().await;
            });
            Ok(Response::new(answer))
        }
    }));
    let mut caller = setup.caller().await;
    let mut answer = caller
        .send(post("/a.B/Stream", body(vec![framed(b"")], None)))
        .await
        .expect("headers")
        .into_body();
    waiting.await.expect("told");
    assert_eq!(
        answer.frame().await.expect("data").expect("no error").into_data().expect("data"),
        framed(b"part")
    );
    drop(upstream);
    let trailers =
        answer.frame().await.expect("more").expect("no error").into_trailers().expect("trailers");
    assert_eq!(trailers["grpc-status"], "14");
}

#[tokio::test]
async fn a_stream_that_the_upstream_resets_is_reset_for_the_same_reason() {
    let setup = Setup::new(BOTH);
    let _upstream = setup.upstream(handler(|_| async move {
        Err(Error::from(h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM)))
    }));
    let mut caller = setup.caller().await;
    for call in ["/a.B/C", "/csi.v1.Node/NodeGetVolumeStats"] {
        let error =
            caller.send(post(call, body(vec![framed(b"")], None))).await.expect_err("reset");
        let cause = std::error::Error::source(&error)
            .and_then(|cause| cause.downcast_ref::<h2::Error>())
            .expect("h2's");
        assert_eq!(cause.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM), "{call}");
    }
}

#[tokio::test]
async fn large_metadata_pass_unchanged() {
    let setup = Setup::new(BOTH);
    let _upstream = setup.upstream(handler(|request| async move {
        let mut response = Response::new(body(Vec::new(), Some(headers(&[("grpc-status", "0")]))));
        response.headers_mut().insert("x-back", request.headers()["x-there"].clone());
        Ok(response)
    }));
    let mut caller = setup.caller().await;
    let value = "m".repeat(200 << 10);
    let mut request = post("/a.B/C", body(Vec::new(), None));
    request.headers_mut().extend(headers(&[("x-there", &value)]));
    assert_eq!(caller.send(request).await.expect("an answer").headers()["x-back"], value);
}
