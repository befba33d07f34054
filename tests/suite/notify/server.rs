//! Servers that notifications are sent to: SMTP with STARTTLS or TLS and a login, and HTTP. They
//! speak the protocols over real sockets, and misbehave on request.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub const USER: &str = "node7";
pub const PASSWORD: &str = "correct horse";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    None,
    Starttls,
    Implicit,
}

/// What a server does with its next connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behavior {
    Works,
    /// Accepts the connection and is silent.
    Hangs,
    /// SMTP: this answer to RCPT. HTTP: this status.
    Refuses(&'static str),
    /// Ends the connection within DATA, or before the answer.
    DiesWithinData,
    /// Accepts the mail, and ends the connection without an answer to QUIT.
    DiesAfterData,
}

#[derive(Default)]
pub struct Log {
    /// Mails, or requests with head and body; also those that were not accepted.
    pub received: Vec<String>,
    pub accepted: Vec<String>,
    pub next: VecDeque<Behavior>,
    pub connections: usize,
}

pub struct Server {
    pub address: SocketAddr,
    pub log: Arc<Mutex<Log>>,
}

pub fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates").join(name)
}

trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}
type Stream = BufReader<Box<dyn Duplex>>;

fn tls_config(file: &str) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(certificate(file))
        .expect("a certificate")
        .map(|certificate| certificate.expect("a certificate"))
        .collect();
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a pair");
    Arc::new(config)
}

fn encrypt(stream: TcpStream, config: &Arc<ServerConfig>) -> Box<dyn Duplex> {
    let connection = ServerConnection::new(config.clone()).expect("a connection");
    Box::new(StreamOwned::new(connection, stream))
}

impl Server {
    fn start(
        port: u16,
        serve: impl Fn(TcpStream, Behavior, &Mutex<Log>) -> Option<()> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("an address");
        let address = listener.local_addr().expect("an address");
        let log = Arc::new(Mutex::new(Log::default()));
        let (shared, serve) = (log.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, serve) = (shared.clone(), serve.clone());
                std::thread::spawn(move || {
                    let behavior = {
                        let mut log = log.lock().expect("unpoisoned");
                        log.connections += 1;
                        log.next.pop_front().unwrap_or(Behavior::Works)
                    };
                    // A client may leave at any time.
                    let _ = serve(stream, behavior, &log);
                });
            }
        });
        Server { address, log }
    }

    /// Port 0: any.
    pub fn smtp(port: u16, tls: Tls, certificate: &str) -> Server {
        let config = tls_config(certificate);
        Server::start(port, move |stream, behavior, log| {
            if behavior == Behavior::Hangs {
                return hang(stream);
            }
            let raw = stream.try_clone().ok()?;
            let stream: Box<dyn Duplex> = match tls {
                Tls::Implicit => encrypt(stream, &config),
                _ => Box::new(stream),
            };
            let mut session = SmtpSession {
                stream: BufReader::new(stream),
                raw,
                offers_starttls: tls == Tls::Starttls,
                is_encrypted: tls == Tls::Implicit,
                needs_login: tls != Tls::None,
                config: config.clone(),
            };
            session.run(&behavior, log)
        })
    }

    pub fn http(is_tls: bool) -> Server {
        let config = tls_config("server.pem");
        Server::start(0, move |stream, behavior, log| {
            if behavior == Behavior::Hangs {
                return hang(stream);
            }
            let stream: Box<dyn Duplex> = match is_tls {
                true => encrypt(stream, &config),
                false => Box::new(stream),
            };
            answer_http(BufReader::new(stream), &behavior, log)
        })
    }

    pub fn will(&self, behaviors: &[Behavior]) {
        let mut log = self.log.lock().expect("unpoisoned");
        log.next.extend(behaviors.iter().cloned());
    }

    pub fn accepted(&self) -> Vec<String> {
        self.log.lock().expect("unpoisoned").accepted.clone()
    }

    pub fn received(&self) -> Vec<String> {
        self.log.lock().expect("unpoisoned").received.clone()
    }
}

/// Until the client leaves.
fn hang(mut stream: TcpStream) -> Option<()> {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).ok()? > 0 {}
    None
}

fn read_line(stream: &mut Stream) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}

struct SmtpSession {
    stream: Stream,
    raw: TcpStream,
    offers_starttls: bool,
    is_encrypted: bool,
    needs_login: bool,
    config: Arc<ServerConfig>,
}

impl SmtpSession {
    fn say(&mut self, text: &str) -> Option<()> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{text}\r\n").as_bytes()).ok()?;
        stream.flush().ok()
    }

    fn run(&mut self, behavior: &Behavior, log: &Mutex<Log>) -> Option<()> {
        self.say("220 test.example ESMTP")?;
        let mut is_known = !self.needs_login;
        loop {
            let line = read_line(&mut self.stream)?;
            let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" => {
                    self.say("250-test.example")?;
                    if self.offers_starttls && !self.is_encrypted {
                        self.say("250-STARTTLS")?;
                    } else if self.needs_login {
                        self.say("250-AUTH PLAIN LOGIN")?;
                    }
                    self.say("250 8BITMIME")?;
                }
                "STARTTLS" => {
                    self.say("220 go ahead")?;
                    let raw = self.raw.try_clone().ok()?;
                    self.stream = BufReader::new(encrypt(raw, &self.config));
                    self.is_encrypted = true;
                }
                "AUTH" => {
                    let given = line.rsplit(' ').next().unwrap_or_default();
                    let given = base64::engine::general_purpose::STANDARD.decode(given).ok()?;
                    is_known = given == format!("\0{USER}\0{PASSWORD}").as_bytes();
                    self.say(match is_known {
                        true => "235 2.7.0 welcome",
                        false => "535 5.7.8 the password is wrong or has expired",
                    })?;
                }
                "MAIL" if !is_known => self.say("530 5.7.0 log in first")?,
                "RCPT" => match behavior {
                    Behavior::Refuses(answer) => self.say(answer)?,
                    _ => self.say("250 2.1.5 ok")?,
                },
                "DATA" => {
                    self.say("354 go on")?;
                    let mut mail = String::new();
                    loop {
                        let line = read_line(&mut self.stream)?;
                        if line == "." {
                            break;
                        }
                        mail.push_str(line.strip_prefix('.').unwrap_or(&line));
                        mail.push('\n');
                        if *behavior == Behavior::DiesWithinData && mail.contains("Subject:") {
                            log.lock().expect("unpoisoned").received.push(mail);
                            return self.raw.shutdown(std::net::Shutdown::Both).ok();
                        }
                    }
                    {
                        let mut log = log.lock().expect("unpoisoned");
                        log.received.push(mail.clone());
                        log.accepted.push(mail);
                    }
                    self.say("250 2.0.0 queued as TEST1")?;
                    if *behavior == Behavior::DiesAfterData {
                        return self.raw.shutdown(std::net::Shutdown::Both).ok();
                    }
                }
                "QUIT" => return self.say("221 bye"),
                _ => self.say("250 ok")?,
            }
        }
    }
}

fn answer_http(mut stream: Stream, behavior: &Behavior, log: &Mutex<Log>) -> Option<()> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let line = read_line(&mut stream)?;
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
        head.push('\n');
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let request = format!("{head}\n{}", String::from_utf8(body).ok()?);
    let status = match behavior {
        Behavior::Refuses(status) => status,
        _ => "200 OK",
    };
    {
        let mut log = log.lock().expect("unpoisoned");
        log.received.push(request.clone());
        if *behavior == Behavior::DiesWithinData {
            return None;
        }
        if status == "200 OK" {
            log.accepted.push(request);
        }
    }
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: 8\r\nConnection: close\r\n\r\nreceived");
    let stream = stream.get_mut();
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()
}

/// A port on which nothing listens.
pub fn closed_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("an address");
    listener.local_addr().expect("an address").port()
}

/// The text of a mail, decoded.
pub fn mail_text(mail: &str) -> String {
    let (head, body) = mail.split_once("\n\n").expect("a head and a body");
    if head.contains("base64") {
        let joined: String = body.split_whitespace().collect();
        let bytes = base64::engine::general_purpose::STANDARD.decode(joined);
        return String::from_utf8(bytes.expect("base64")).expect("text");
    }
    body.replace("=\n", "").replace("=20", " ").replace("=3D", "=")
}

pub fn header<'a>(mail: &'a str, name: &str) -> &'a str {
    let prefix = format!("{}:", name.to_ascii_lowercase());
    mail.lines()
        .take_while(|line| !line.is_empty())
        .find(|line| line.to_ascii_lowercase().starts_with(&prefix))
        .map_or("", |line| line[prefix.len()..].trim())
}

pub const TIMEOUT: Duration = Duration::from_secs(40);
