//! Canonical protobuf JSON (protobuf.dev, "ProtoJSON"): lowerCamelCase, 64-bit integers as strings,
//! default values emitted.

use std::sync::OnceLock;

use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorError, DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor,
    SerializeOptions,
};

use diskvitals_wire::DESCRIPTORS;

#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("reading the compiled descriptors")]
    Descriptors(#[source] DescriptorError),
    #[error("there is no message diskvitals.v1.{0}")]
    NoSuchMessage(String),
    #[error("reading diskvitals.v1.{message}")]
    Decode {
        message: String,
        #[source]
        source: prost_reflect::prost::DecodeError,
    },
    #[error("reading diskvitals.v1.{message} from JSON")]
    Deserialize {
        message: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("writing diskvitals.v1.{message}")]
    Serialize {
        message: String,
        #[source]
        source: serde_json::Error,
    },
}

/// `message` is the message's name in diskvitals.v1.
pub(crate) fn pretty(message: &str, value: &impl Message) -> Result<String, JsonError> {
    let mut bytes = Vec::new();
    serialize(message, value, &mut serde_json::Serializer::pretty(&mut bytes))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The message on one line.
pub(crate) fn compact(message: &str, value: &impl Message) -> Result<String, JsonError> {
    let mut bytes = Vec::new();
    serialize(message, value, &mut serde_json::Serializer::new(&mut bytes))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The message as a value, to be joined with others.
pub fn value(message: &str, value: &impl Message) -> Result<serde_json::Value, JsonError> {
    let text = compact(message, value)?;
    serde_json::from_str(&text)
        .map_err(|source| JsonError::Serialize { message: message.to_owned(), source })
}

/// Reads a message from its canonical JSON. Fields that this version does not know are skipped.
pub fn parse<M: Message + Default>(
    message: &str,
    value: serde_json::Value,
) -> Result<M, JsonError> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let dynamic =
        DynamicMessage::deserialize_with_options(descriptor(message)?, value, &options)
            .map_err(|source| JsonError::Deserialize { message: message.to_owned(), source })?;
    dynamic
        .transcode_to()
        .map_err(|source| JsonError::Decode { message: message.to_owned(), source })
}

pub fn descriptor(message: &str) -> Result<MessageDescriptor, JsonError> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    let pool = match POOL.get() {
        Some(pool) => pool,
        None => {
            let pool = DescriptorPool::decode(DESCRIPTORS).map_err(JsonError::Descriptors)?;
            POOL.get_or_init(|| pool)
        }
    };
    pool.get_message_by_name(&format!("diskvitals.v1.{message}"))
        .ok_or_else(|| JsonError::NoSuchMessage(message.to_owned()))
}

fn serialize<'a, S>(
    message: &str,
    value: &impl Message,
    serializer: &'a mut S,
) -> Result<(), JsonError>
where
    &'a mut S: serde::Serializer<Error = serde_json::Error>,
{
    let dynamic = DynamicMessage::decode(descriptor(message)?, value.encode_to_vec().as_slice())
        .map_err(|source| JsonError::Decode { message: message.to_owned(), source })?;
    let options = SerializeOptions::new().skip_default_fields(false);
    dynamic
        .serialize_with_options(serializer, &options)
        .map(|_| ())
        .map_err(|source| JsonError::Serialize { message: message.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_wire as wire;

    #[test]
    fn defaults_are_emitted_and_large_numbers_are_strings() {
        let capacity = wire::Capacity { total_bytes: 1 << 60, total_inodes: 0 };
        assert_eq!(
            compact("Capacity", &capacity).unwrap(),
            r#"{"totalBytes":"1152921504606846976","totalInodes":"0"}"#
        );
        let drive: serde_json::Value =
            serde_json::from_str(&pretty("Drive", &wire::Drive::default()).unwrap()).unwrap();
        assert_eq!(drive["kind"], "DRIVE_KIND_UNSPECIFIED");
        assert_eq!(drive["findings"], serde_json::json!([]));
    }
}
