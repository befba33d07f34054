//! Encoding of metric families: a name, a help text, and samples. A thin layer over
//! prometheus-client's encoder.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::model::timing::{BOUNDS, Timing};

pub(crate) static SECONDS: Unit = Unit::Seconds;
pub(crate) static BYTES: Unit = Unit::Bytes;
pub(crate) static CELSIUS: Unit = Unit::Celsius;

pub(crate) struct Families<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl<'e> Families<'e> {
    pub(crate) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Families { encoder }
    }

    /// The unit is appended to the name.
    pub(crate) fn gauge(
        &mut self,
        name: &'static str,
        unit: Option<&'static Unit>,
        help: &str,
    ) -> Result<Family<'_>, fmt::Error> {
        self.family(name, unit, help, MetricType::Gauge)
    }

    /// `_total` is appended to the name, after the unit.
    pub(crate) fn counter(
        &mut self,
        name: &'static str,
        unit: Option<&'static Unit>,
        help: &str,
    ) -> Result<Family<'_>, fmt::Error> {
        self.family(name, unit, help, MetricType::Counter)
    }

    pub(crate) fn histogram(
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

pub(crate) struct Family<'e> {
    encoder: MetricEncoder<'e>,
}

impl Family<'_> {
    pub(crate) fn value(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
    }

    pub(crate) fn signed(&mut self, labels: &impl EncodeLabelSet, value: i64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_gauge(&value)
    }

    pub(crate) fn fraction(&mut self, labels: &impl EncodeLabelSet, value: f64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_gauge(&value)
    }

    pub(crate) fn count(&mut self, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    pub(crate) fn fractional_count(
        &mut self,
        labels: &impl EncodeLabelSet,
        value: f64,
    ) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    /// The one sample of a family without labels.
    pub(crate) fn unlabeled(&mut self, value: i64) -> fmt::Result {
        self.encoder.encode_gauge(&value)
    }

    pub(crate) fn unlabeled_count(&mut self, value: u64) -> fmt::Result {
        self.encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    pub(crate) fn histogram_value(
        &mut self,
        labels: &impl EncodeLabelSet,
        timing: &Timing,
    ) -> fmt::Result {
        let ends = BOUNDS.iter().map(|millis| *millis as f64 / 1000.0).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(timing.counts).collect();
        self.encoder.encode_family(labels)?.encode_histogram::<NoLabelSet>(
            timing.sum.as_secs_f64(),
            timing.count(),
            &buckets,
            None,
        )
    }

    /// One series per state, 1 for the current one: a query for a former state then gives 0, not no
    /// result.
    pub(crate) fn states(
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
