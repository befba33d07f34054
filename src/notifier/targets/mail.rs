//! A notification as a mail (RFC 5322): text, with an id that is the same in every attempt.

use std::time::SystemTime;

use lettre::Message;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue, MIME_VERSION_1_0};

use crate::message::Level;
use crate::outgoing::Outgoing;
use crate::targets::DeliveryError;

/// Names of headers that mail readers and filters know.
macro_rules! headers {
    ($($type:ident, $name:literal;)*) => {$(
        #[derive(Clone)]
        struct $type(String);

        impl Header for $type {
            fn name() -> HeaderName {
                HeaderName::new_from_ascii_str($name)
            }

            fn parse(text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
                Ok($type(text.to_owned()))
            }

            fn display(&self) -> HeaderValue {
                HeaderValue::new(Self::name(), self.0.clone())
            }
        }
    )*};
}

headers! {
    // RFC 3834: no vacation program answers.
    AutoSubmitted, "Auto-Submitted";
    Importance, "Importance";
    NotificationId, "X-Diskvitals-Id";
}

pub(crate) fn message(
    notification: &Outgoing,
    from: &Mailbox,
    to: &[Mailbox],
) -> Result<Message, DeliveryError> {
    let message_id = |id: &str| format!("<{id}@{}>", from.email.domain());
    let importance = match notification.urgency {
        Level::Bad => "high",
        _ => "normal",
    };
    let mut builder = Message::builder()
        .from(from.clone())
        .message_id(Some(message_id(&notification.id)))
        .date(SystemTime::from(notification.time))
        .subject(notification.title.to_string())
        .header(AutoSubmitted("auto-generated".to_owned()))
        .header(Importance(importance.to_owned()))
        .header(NotificationId(notification.id.to_string()))
        .header(MIME_VERSION_1_0)
        .header(ContentType::TEXT_PLAIN);
    for to in to {
        builder = builder.to(to.clone());
    }
    // RFC 5322, 3.6.4: the parents, and all that came before in their threads, which is the same here.
    let parents: Vec<String> = notification.replies_to.iter().map(|id| message_id(id)).collect();
    if !parents.is_empty() {
        let parents = parents.join(" ");
        builder = builder.in_reply_to(parents.clone()).references(parents);
    }
    let text = format!(
        "{}\n\n-- \ndiskvitals-notify on {}, message {}\n",
        notification.text.trim_end(),
        notification.host,
        notification.id
    );
    builder.body(text).map_err(|error| DeliveryError::refused(format!("making the mail: {error}")))
}
