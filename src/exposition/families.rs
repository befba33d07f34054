//! Encoding of metric families: a name, a help text, and samples. A thin layer over
//! prometheus-client's encoder.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::label::label;
use diskvitals_finding::timing::{BOUNDS, Timing};

pub static SECONDS: Unit = Unit::Seconds;
pub static BYTES: Unit = Unit::Bytes;
pub static CELSIUS: Unit = Unit::Celsius;

pub struct Families<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl<'e> Families<'e> {
    pub fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Families { encoder }
    }

    /// The unit is appended to the name.
    pub fn gauge(
        &mut self,
        name: &'static str,
        unit: Option<&'static Unit>,
        help: &str,
    ) -> Result<Family<'_>, fmt::Error> {
        self.family(name, unit, help, MetricType::Gauge)
    }

    /// `_total` is appended to the name, after the unit.
    pub fn counter(
        &mut self,
        name: &'static str,
        unit: Option<&'static Unit>,
        help: &str,
    ) -> Result<Family<'_>, fmt::Error> {
        self.family(name, unit, help, MetricType::Counter)
    }

    pub fn histogram(
        &mut self,
        name: &'static str,
        unit: Option<&'static Unit>,
        help: &str,
    ) -> Result<Family<'_>, fmt::Error> {
        self.family(name, unit, help, MetricType::Histogram)
    }

    fn family(
        &mut self,
        name: &'static str,
        unit: Option<&'static Unit>,
        help: &str,
        of: MetricType,
    ) -> Result<Family<'_>, fmt::Error> {
        Ok(Family { encoder: self.encoder.encode_descriptor(name, help, unit, of)? })
    }
}

/// The only way of a text into the metrics: what is in a label is bounded and escaped here.
struct Labels<'l, T>(&'l [(&'l str, T)]);

impl<T: AsRef<str>> EncodeLabelSet for Labels<'_, T> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        self.0.iter().try_for_each(|(key, value)| {
            (*key, label(value.as_ref())).encode(encoder.encode_label())
        })
    }
}

pub struct Family<'e> {
    encoder: MetricEncoder<'e>,
}

impl Family<'_> {
    pub fn value(&mut self, labels: &[(&str, impl AsRef<str>)], value: u64) -> fmt::Result {
        self.encoder
            .encode_family(&Labels(labels))?
            .encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
    }

    pub fn signed(&mut self, labels: &[(&str, impl AsRef<str>)], value: i64) -> fmt::Result {
        self.encoder.encode_family(&Labels(labels))?.encode_gauge(&value)
    }

    pub fn fraction(&mut self, labels: &[(&str, impl AsRef<str>)], value: f64) -> fmt::Result {
        self.encoder.encode_family(&Labels(labels))?.encode_gauge(&value)
    }

    pub fn count(&mut self, labels: &[(&str, impl AsRef<str>)], value: u64) -> fmt::Result {
        self.encoder
            .encode_family(&Labels(labels))?
            .encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    pub fn fractional_count(
        &mut self,
        labels: &[(&str, impl AsRef<str>)],
        value: f64,
    ) -> fmt::Result {
        self.encoder
            .encode_family(&Labels(labels))?
            .encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    /// The one sample of a family without labels.
    pub fn unlabeled(&mut self, value: i64) -> fmt::Result {
        self.encoder.encode_gauge(&value)
    }

    pub fn unlabeled_count(&mut self, value: u64) -> fmt::Result {
        self.encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    pub fn histogram_value(
        &mut self,
        labels: &[(&str, impl AsRef<str>)],
        timing: &Timing,
    ) -> fmt::Result {
        let ends = BOUNDS.iter().map(|millis| *millis as f64 / 1000.0).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(timing.counts).collect();
        self.encoder.encode_family(&Labels(labels))?.encode_histogram::<NoLabelSet>(
            timing.sum.as_secs_f64(),
            timing.count(),
            &buckets,
            None,
        )
    }

    /// One series per state, 1 for the current one: a query for a former state then gives 0, not no
    /// result.
    pub fn states(
        &mut self,
        of: Option<(&'static str, &str)>,
        key: &'static str,
        all: &[&'static str],
        now: &str,
    ) -> fmt::Result {
        for state in all {
            let holds = u64::from(*state == now);
            match of {
                Some(of) => self.value(&[of, (key, *state)], holds)?,
                None => self.value(&[(key, *state)], holds)?,
            }
        }
        Ok(())
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
            let labels = [("one", HOSTILE), ("two", long.as_str())];
            let mut gauge = families.gauge("gauge", None, "Help.")?;
            gauge.value(&labels, 1)?;
            gauge.signed(&labels, 1)?;
            gauge.fraction(&labels, 1.0)?;
            gauge.states(Some(("one", HOSTILE)), "state", &["a"], HOSTILE)?;
            let mut counter = families.counter("counter", None, "Help.")?;
            counter.count(&labels, 1)?;
            counter.fractional_count(&labels, 1.0)?;
            families.histogram("histogram", None, "Help.")?.histogram_value(&labels, &timing)
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
            let is_of_ours = ["# ", "gauge{", "counter_total{", "histogram_"]
                .iter()
                .any(|it| line.starts_with(it));
            assert!(is_of_ours && line.len() < 700, "{line}");
        }
    }
}
