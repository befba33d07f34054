//! Encoding of metric families: tables of them, with the samples of each subject. A thin layer over
//! prometheus-client's encoder.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
pub use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::label::label;
use diskvitals_finding::timing::{BOUNDS, Timing};

pub static SECONDS: Unit = Unit::Seconds;
pub static BYTES: Unit = Unit::Bytes;
pub static CELSIUS: Unit = Unit::Celsius;

/// A row of a table of families: what it is, and its samples of one `T`. The unit and a counter's
/// `_total` are appended to the name.
pub struct FamilyRow<T> {
    name: &'static str,
    unit: Option<&'static Unit>,
    of: MetricType,
    help: &'static str,
    samples: SamplesOf<T>,
}

type SamplesOf<T> = fn(&T, &mut Samples<'_, '_>) -> fmt::Result;

impl<T> FamilyRow<T> {
    pub const fn new(
        of: MetricType,
        name: &'static str,
        help: &'static str,
        samples: SamplesOf<T>,
    ) -> Self {
        FamilyRow { name, unit: None, of, help, samples }
    }

    pub const fn in_unit(mut self, unit: &'static Unit) -> Self {
        self.unit = Some(unit);
        self
    }
}

/// A table of families about a type. A row is its kind, name, unit, help and samples:
///
/// ```text
///     Gauge "diskvitals_drive_size" in BYTES: "Its size, over all namespaces."
///         => |it, to| to.value(it.facts.size_bytes);
/// ```
#[macro_export]
macro_rules! families {
    ($of:ty: $($kind:ident $name:literal $(in $unit:ident)?: $help:literal => $samples:expr;)*) => {
        [$($crate::families::FamilyRow::<$of>::new(
            $crate::families::MetricType::$kind, $name, $help, $samples
        )$(.in_unit(&$crate::families::$unit))?),*]
    };
}

/// A subject of a table: the labels that all of its samples have, and what it is.
pub type Subject<'a, T, const LABELS: usize> = ([(&'static str, &'a str); LABELS], &'a T);

pub struct Families<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl<'e> Families<'e> {
    pub fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Families { encoder }
    }

    /// Each family with the samples of all subjects.
    pub fn encode<T, const LABELS: usize>(
        &mut self,
        rows: &[FamilyRow<T>],
        subjects: &[Subject<'_, T, LABELS>],
    ) -> fmt::Result {
        for FamilyRow { name, unit, of, help, samples } in rows {
            let mut encoder = self.encoder.encode_descriptor(name, help, *unit, *of)?;
            for (labels, subject) in subjects {
                samples(subject, &mut Samples { encoder: &mut encoder, of: *of, subject: labels })?;
            }
        }
        Ok(())
    }
}

/// The only way of a text into the metrics: what is in a label is bounded and escaped here.
struct Labels<'l>(&'l [(&'l str, &'l str)], &'l [(&'l str, &'l str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        self.0
            .iter()
            .chain(self.1)
            .try_for_each(|(key, value)| (*key, label(value)).encode(encoder.encode_label()))
    }
}

/// The value of a sample; None: there is no sample.
pub struct Value(Option<Number>);

enum Number {
    Whole(i128),
    Fraction(f64),
}

macro_rules! whole {
    ($($number:ty)*) => {$(
        impl From<$number> for Value {
            fn from(value: $number) -> Value {
                Value(Some(Number::Whole(value.into())))
            }
        }
    )*};
}
whole!(u64 i64 bool);

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value(Some(Number::Fraction(value)))
    }
}

impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Value {
        value.map_or(Value(None), V::into)
    }
}

/// The samples of one subject in a family; its labels come before those of each sample.
pub struct Samples<'f, 'e> {
    encoder: &'f mut MetricEncoder<'e>,
    of: MetricType,
    subject: &'f [(&'f str, &'f str)],
}

impl Samples<'_, '_> {
    pub fn value(&mut self, value: impl Into<Value>) -> fmt::Result {
        self.labeled(&[], value)
    }

    /// What a subject is stands in its labels.
    pub fn info(&mut self, labels: &[(&str, &str)]) -> fmt::Result {
        self.labeled(labels, true)
    }

    pub fn labeled(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) -> fmt::Result {
        let Value(Some(value)) = value.into() else {
            return Ok(());
        };
        let labels = Labels(self.subject, labels);
        match labels.0.is_empty() && labels.1.is_empty() {
            true => encode_number(self.encoder, self.of, value),
            false => encode_number(&mut self.encoder.encode_family(&labels)?, self.of, value),
        }
    }

    pub fn timing(&mut self, labels: &[(&str, &str)], timing: &Timing) -> fmt::Result {
        let ends = BOUNDS.iter().map(|millis| *millis as f64 / 1000.0).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(timing.counts).collect();
        let labels = Labels(self.subject, labels);
        self.encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            timing.sum.as_secs_f64(),
            timing.count(),
            &buckets,
            None,
        )
    }

    /// One series per state, 1 for the current one: a query for a former state then gives 0, not no
    /// result.
    pub fn states(&mut self, key: &str, all: &[&str], now: &str) -> fmt::Result {
        all.iter().try_for_each(|state| self.labeled(&[(key, state)], *state == now))
    }

    /// The same of a part of the subject.
    pub fn states_of(
        &mut self,
        of: (&str, &str),
        key: &str,
        all: &[&str],
        now: &str,
    ) -> fmt::Result {
        all.iter().try_for_each(|state| self.labeled(&[of, (key, state)], *state == now))
    }
}

fn encode_number(encoder: &mut MetricEncoder<'_>, of: MetricType, number: Number) -> fmt::Result {
    let counter = matches!(of, MetricType::Counter);
    match number {
        Number::Whole(value) if counter => {
            let value = u64::try_from(value.max(0)).unwrap_or(u64::MAX);
            encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None)
        }
        Number::Fraction(value) if counter => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None)
        }
        Number::Whole(value) => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
        Number::Fraction(value) => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::registry::Registry;

    use super::*;
    use diskvitals_text::echo::is_deceptive;

    const HOSTILE: &str = "a\r\nb 1\n\u{1b}]0;x\u{7}\u{202e}\u{200b}\u{9b}";

    #[derive(Debug)]
    struct Every;

    impl Collector for Every {
        fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
            let mut families = Families::new(encoder);
            let (long, timing) = ("x".repeat(5000), Timing::default());
            let rows = families! {
                (&str, Timing):
                Gauge "gauge": "Help." => |(text, _), to| {
                    to.value(1_i64)?;
                    to.value(1.0)?;
                    to.labeled(&[("two", text)], 1_u64)?;
                    to.states("state", &["a"], text)
                };
                Counter "counter": "Help." => |(text, _), to| {
                    to.value(1_u64)?;
                    to.labeled(&[("two", text)], 1.0)
                };
                Histogram "histogram": "Help."
                    => |(text, timing), to| to.timing(&[("two", text)], timing);
            };
            families.encode(&rows, &[([("one", HOSTILE)], &(long.as_str(), timing))])?;
            let unlabeled =
                families! { (): Gauge "gauge_unlabeled": "Help." => |(), to| to.value(1_i64); };
            families.encode(&unlabeled, &[([], &())])
        }
    }

    #[test]
    fn no_text_reaches_a_label_as_it_is_or_without_an_end() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Every));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.lines().filter(|line| line.contains("one=")).count() > 15, "{text}");
        assert!(!text.contains(|c| is_deceptive(c) && c != '\n'), "{text:?}");
        for line in text.lines() {
            let is_of_ours = ["# ", "gauge{", "gauge_unlabeled 1", "counter_total{", "histogram_"]
                .iter()
                .any(|it| line.starts_with(it));
            assert!(is_of_ours && line.len() < 700, "{line}");
        }
    }
}
