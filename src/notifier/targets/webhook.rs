//! A webhook: the notification's JSON, a body of the configuration, or the form that a chat expects.
//!
//! Names of others reach a chat as text: nothing in them becomes a link, a mention or a format.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::message::Level;
use crate::outgoing::Outgoing;
use crate::secret::SecretFile;
use crate::targets::DeliveryError;
use crate::targets::http::{self, Headers, HttpUrl, Request, UrlSource};
use crate::template::Template;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    Json,
    Slack,
    Teams,
    Discord,
    Ntfy,
    Gotify,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WebhookTarget {
    pub url: UrlSource,
    pub preset: Preset,
    pub method: ::http::Method,
    pub headers: Headers,
    /// Sent as a bearer token; to Gotify as its application's token.
    pub token: Option<SecretFile>,
    pub content_type: ::http::HeaderValue,
    pub body: Option<Template>,
    pub ca_file: Option<PathBuf>,
}

impl WebhookTarget {
    pub(crate) async fn send(&self, notification: &Outgoing) -> Result<String, DeliveryError> {
        let configured = self.url.resolve().await?;
        let (url, body) = match &self.body {
            Some(template) => (configured, template.render(notification)),
            None => {
                let (url, body) = request(self.preset, configured, notification)?;
                (url, body.to_string())
            }
        };
        let mut headers = self.headers.resolve().await?;
        headers.push((::http::header::CONTENT_TYPE, self.content_type.clone()));
        let key = ::http::HeaderValue::from_str(&notification.id)
            .map_err(|_| DeliveryError::refused("the notification's id is no header"))?;
        headers.push((::http::HeaderName::from_static("idempotency-key"), key));
        if let Some(token) = &self.token {
            let token = http::read_secret(token).await?;
            headers.push(match self.preset {
                Preset::Gotify => (
                    ::http::HeaderName::from_static("x-gotify-key"),
                    http::secret_value(&token, "")?,
                ),
                _ => (::http::header::AUTHORIZATION, http::secret_value(&token, "Bearer ")?),
            });
        }
        http::send(Request {
            url: &url,
            method: self.method.clone(),
            headers,
            body: body.into_bytes(),
            ca_file: self.ca_file.as_deref(),
        })
        .await
    }

    pub(crate) async fn probe(&self) -> Result<String, DeliveryError> {
        http::probe(&self.url.resolve().await?, self.ca_file.as_deref()).await
    }
}

/// The address and the body of a preset.
fn request(
    preset: Preset,
    url: HttpUrl,
    notification: &Outgoing,
) -> Result<(HttpUrl, Value), DeliveryError> {
    let (title, text) = (notification.title.as_str(), notification.text.trim_end());
    Ok(match preset {
        Preset::Json => (url, notification.json().clone()),
        Preset::Slack => (url, slack(title, text)),
        Preset::Teams => (url, teams(title, text)),
        Preset::Discord => (url, discord(title, text)),
        // The topic is the last part of the path; JSON goes to the path above it.
        Preset::Ntfy => {
            let path = url.path_and_query().to_owned();
            let path = path.split('?').next().unwrap_or_default().trim_end_matches('/');
            let (base, topic) = path.rsplit_once('/').unwrap_or(("", path));
            if topic.is_empty() {
                return Err(DeliveryError::unavailable(
                    "the address of ntfy has no topic: write https://HOST/TOPIC",
                ));
            }
            let body = json!({
                "topic": topic,
                "title": cut(title, 250),
                // Longer messages become attachments (docs.ntfy.sh, Limitations).
                "message": cut(text, 3000),
                "priority": match notification.urgency { Level::Bad => 5, Level::Suspect | Level::Unknown => 4, _ => 3 },
            });
            (url.with_path(&format!("{base}/"))?, body)
        }
        Preset::Gotify => {
            let path = url.path_and_query().trim_end_matches('/').to_owned();
            let path = match path.ends_with("/message") {
                true => path,
                false => format!("{path}/message"),
            };
            let body = json!({
                "title": title,
                "message": text,
                "priority": match notification.urgency { Level::Bad => 8, Level::Suspect | Level::Unknown => 5, _ => 2 },
                "extras": {"client::display": {"contentType": "text/plain"}},
            });
            (url.with_path(&path)?, body)
        }
    })
}

/// Slack reads `<...>` as links and mentions, and `&` as an entity (api.slack.com, Formatting).
fn slack(title: &str, text: &str) -> Value {
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // In a block of code there is no other format; backticks would end it.
    let block = plain(&format!("{}\n\n{}", cut(title, 300), cut(text, 2300)));
    let block = cut(&block.replace("```", "'''"), 2900);
    json!({
        "text": plain(title),
        "unfurl_links": false,
        "unfurl_media": false,
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "verbatim": true, "text": format!("```{block}```")}}],
    })
}

/// An adaptive card. A TextRun has no markdown.
fn teams(title: &str, text: &str) -> Value {
    let run = |text: &str, weight: &str, font: &str| json!({"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, "weight": weight, "fontType": font}]});
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [run(title, "Bolder", "Default"), run(&cut(text, 20_000), "Default", "Monospace")],
                "msteams": {"width": "Full"},
            },
        }],
    })
}

/// 2,000 characters are the most (discord.com/developers, Create Message).
fn discord(title: &str, text: &str) -> Value {
    let plain = |text: &str| text.replace('`', "'");
    let (title, text) = (cut(&plain(title), 300), cut(&plain(text), 1600));
    json!({
        "content": format!("```\n{title}\n\n{text}\n```"),
        "allowed_mentions": {"parse": []},
    })
}

/// The beginning, by characters, and that it is only the beginning.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… (more in `diskvitals status`)", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use lettre::message::Mailbox;

    use super::*;
    use crate::message::Notification;
    use crate::message::tests_support::sample;
    use crate::outgoing::tests::hostile;
    use crate::targets::mail;
    use diskvitals_text::echo::is_deceptive;

    const HOSTILE: &str =
        "``` <!channel> <http://a.example|b> @everyone **b** [x](http://a.example) ``` `c` &lt;";

    #[test]
    fn names_of_others_are_no_link_no_mention_and_no_format_in_any_chat() {
        let notification =
            Notification { title: HOSTILE.to_owned(), text: HOSTILE.to_owned(), ..sample() };
        let notification = Outgoing::new(&notification).expect("JSON");
        let body = |preset| {
            let url: HttpUrl = "https://chat.example/hook".parse().expect("an address");
            request(preset, url, &notification).expect("a body").1
        };
        let text = |body: &Value, at: &str| {
            let text = body.pointer(at).and_then(Value::as_str);
            text.expect("a text").to_owned()
        };
        // One block of code, which no text ends.
        let slack = body(Preset::Slack);
        let block = text(&slack, "/blocks/0/text/text");
        assert_eq!(block.matches("```").count(), 2, "{block}");
        assert!(block.starts_with("```") && block.ends_with("```"));
        for shown in [block, text(&slack, "/text")] {
            assert!(!shown.contains(['<', '>']), "{shown}");
            assert!(shown.contains("&lt;!channel&gt;") && shown.contains("&amp;lt;"));
        }
        let discord = body(Preset::Discord);
        let block = text(&discord, "/content");
        assert_eq!(block.matches('`').count(), 6, "{block}");
        assert!(block.starts_with("```\n") && block.ends_with("\n```"));
        assert_eq!(discord["allowed_mentions"], json!({"parse": []}));
        // Forms without a format of their own: verbatim.
        let teams = body(Preset::Teams);
        for at in [0, 1] {
            let run = format!("/attachments/0/content/body/{at}/inlines/0");
            assert_eq!(text(&teams, &format!("{run}/type")), "TextRun");
            assert_eq!(text(&teams, &format!("{run}/text")), HOSTILE);
        }
        let ntfy = body(Preset::Ntfy);
        assert_eq!(text(&ntfy, "/message"), HOSTILE);
        assert_eq!(ntfy.get("markdown"), None);
        let gotify = body(Preset::Gotify);
        assert_eq!(text(&gotify, "/extras/client::display/contentType"), "text/plain");
    }

    #[test]
    fn no_member_reaches_a_chat_a_template_or_a_mail_as_it_is() {
        let outgoing = Outgoing::new(&hostile()).expect("JSON");
        let url = || "https://chat.example/hook".parse::<HttpUrl>().expect("an address");
        let presets = [
            Preset::Json,
            Preset::Slack,
            Preset::Teams,
            Preset::Discord,
            Preset::Ntfy,
            Preset::Gotify,
        ];
        for preset in presets {
            let (_, body) = request(preset, url(), &outgoing).expect("a body");
            // Strings of JSON, as the chat decodes them.
            let mut values = vec![&body];
            while let Some(value) = values.pop() {
                match value {
                    Value::String(text) => {
                        assert!(
                            !text.contains(|c| is_deceptive(c) && c != '\n'),
                            "{preset:?}: {text:?}"
                        )
                    }
                    Value::Array(list) => values.extend(list),
                    Value::Object(members) => values.extend(members.values()),
                    Value::Null | Value::Bool(_) | Value::Number(_) => {}
                }
            }
        }
        let all = "{{id}} {{kind}} {{severity}} {{host}} {{time}} {{title}} {{text}} {{json}}";
        let body = Template::new(all, false).expect("a template").render(&outgoing);
        assert!(!body.contains(|c| is_deceptive(c) && c != '\n'), "{body:?}");
        let to: Mailbox = "ops@example.org".parse().expect("an address");
        let mail =
            mail::message(&outgoing, &to, std::slice::from_ref(&to)).expect("a mail").formatted();
        let mail = String::from_utf8(mail).expect("text");
        let (headers, _) = mail.split_once("\r\n\r\n").expect("a body");
        assert!(headers.contains("Bcc") && !headers.contains("\r\nBcc"), "{headers}");
        assert!(!mail.contains(|c| is_deceptive(c) && !"\r\n".contains(c)), "{mail:?}");
    }
}
