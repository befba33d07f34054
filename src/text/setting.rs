//! How settings files write durations and sizes: fields with `#[serde(with = …)]`.

/// Durations as whole seconds or as text (`90s`, `10min`, `7d`): `duration`.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::duration;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Seconds(u64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}s", duration.as_secs()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Seconds(seconds) => Ok(Duration::from_secs(seconds)),
            Form::Text(text) => duration::parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

/// Like `seconds`, for optional values.
pub mod optional_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::setting::seconds;

    #[derive(Deserialize)]
    struct SecondsValue(#[serde(with = "seconds")] Duration);

    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => seconds::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Some(SecondsValue::deserialize(deserializer)?.0))
    }
}

/// Sizes as bytes or as text (`5GiB`, `500MB`): `size`.
pub mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::size;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Bytes(u64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&size::text(*bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Bytes(bytes) => Ok(bytes),
            Form::Text(text) => size::parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

/// Like `bytes`, for optional values.
pub mod optional_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::setting::bytes;

    #[derive(Deserialize)]
    struct SizeValue(#[serde(with = "bytes")] u64);

    pub fn serialize<S: Serializer>(size: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match size {
            Some(size) => bytes::serialize(size, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        Ok(Some(SizeValue::deserialize(deserializer)?.0))
    }
}
