//! A server for mail and one for webhooks: in the QEMU guest this same program, copied there (`lab
//! receiver DIRECTORY`), on the Kubernetes node a thread of the test. Each message is a line of JSON
//! in DIRECTORY/received. While DIRECTORY/hold exists, the server for mail keeps its answer to a
//! message that it has.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

pub fn main(arguments: &[String]) -> ExitCode {
    let [directory] = arguments else {
        eprintln!("receiver DIRECTORY");
        return ExitCode::FAILURE;
    };
    run(PathBuf::from(directory));
    ExitCode::SUCCESS
}

/// Serves until the process ends.
pub fn run(directory: PathBuf) {
    let mails = directory.clone();
    let mail = std::thread::spawn(move || serve(2525, &mails, mail));
    serve(8025, &directory, webhook);
    drop(mail.join());
}

fn serve(port: u16, directory: &Path, session: fn(&TcpStream, &Path) -> io::Result<()>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    for stream in listener.incoming().flatten() {
        let directory = directory.to_owned();
        std::thread::spawn(move || {
            if let Err(error) = session(&stream, &directory) {
                eprintln!("port {port}: {error}");
            }
        });
    }
}

/// RFC 5321, as far as a client needs that sends one message.
fn mail(stream: &TcpStream, directory: &Path) -> io::Result<()> {
    let mut out = stream;
    let mut lines = BufReader::new(stream).lines();
    out.write_all(b"220 lab\r\n")?;
    while let Some(line) = lines.next().transpose()? {
        let verb = line.split(' ').next().unwrap_or_default().to_uppercase();
        match verb.as_str() {
            "DATA" => {
                out.write_all(b"354 go on\r\n")?;
                let mut text = String::new();
                for line in lines.by_ref() {
                    let line = line?;
                    if line == "." {
                        break;
                    }
                    text.push_str(&line);
                    text.push('\n');
                }
                let id = text.lines().find_map(|line| line.strip_prefix("Message-ID:"));
                keep(directory, "smtp", id.unwrap_or_default().trim(), "", &text)?;
                while directory.join("hold").exists() {
                    pause();
                }
                out.write_all(b"250 kept\r\n")?;
            }
            "QUIT" => {
                out.write_all(b"221 bye\r\n")?;
                return Ok(());
            }
            _ => out.write_all(b"250 ok\r\n")?,
        }
    }
    Ok(())
}

/// One request of HTTP/1.1 with a length.
fn webhook(stream: &TcpStream, directory: &Path) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut id, mut login) = (0, String::new(), String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
            "idempotency-key" => value.trim().clone_into(&mut id),
            "authorization" => value.trim().clone_into(&mut login),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let text = String::from_utf8_lossy(&body);
    keep(directory, "http", &id, &login, &text)?;
    let mut out = stream;
    out.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
}

#[expect(clippy::disallowed_methods, reason = "a server beside the daemon, with the guest's clock")]
fn keep(directory: &Path, protocol: &str, id: &str, login: &str, text: &str) -> io::Result<()> {
    let at = Timestamp::now().to_string();
    let line = json!({"protocol": protocol, "id": id, "login": login, "at": at, "text": text});
    let mut file = File::options().create(true).append(true).open(directory.join("received"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

#[expect(clippy::disallowed_methods, reason = "nothing announces that a file is gone")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
