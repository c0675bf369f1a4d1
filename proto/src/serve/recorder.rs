//! Where metrics go: counters and gauges to the exporter for Prometheus, histograms to [`Histograms`].

use std::sync::Arc;

use anyhow::Context as _;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit, describe_counter, describe_gauge,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::{
    histogram::Histograms,
    metrics::{Kind, Metric},
};

/// Records all metrics of a service.
pub struct Recorder {
    exporter: PrometheusRecorder,
    histograms: Arc<Histograms>,
}

/// What it has recorded, for `/metrics`.
#[derive(Clone)]
pub struct Page {
    exporter: PrometheusHandle,
    histograms: Arc<Histograms>,
}

impl Page {
    /// All metrics as they are now, in the text format.
    pub fn render(&self) -> String {
        self.exporter.render() + &self.histograms.page()
    }
}

/// A recorder of `declared` metrics and its page.
pub fn recorder(declared: &[Metric]) -> (Recorder, Page) {
    let exporter = PrometheusBuilder::new().build_recorder();
    let histograms = Arc::new(Histograms::new(declared));
    let page = Page { exporter: exporter.handle(), histograms: Arc::clone(&histograms) };
    (Recorder { exporter, histograms }, page)
}

/// Installs the recorder of all `declared` metrics for this process.
///
/// # Errors
/// When one is already installed.
pub fn install(declared: &[Metric]) -> anyhow::Result<Page> {
    let (recorder, page) = recorder(declared);
    // The error holds the recorder itself.
    metrics::set_global_recorder(recorder).map_err(|e| anyhow::anyhow!("{e}")).context("metrics recorder")?;
    for metric in declared {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, metric.unit, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, metric.unit, metric.help),
            Kind::SecondsCounter | Kind::OwnedGauge | Kind::Histogram(_) | Kind::OwnedHistogram(_) => {}
        }
    }
    Ok(page)
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.exporter.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.exporter.describe_gauge(key, unit, description);
    }

    /// Its declaration says it.
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.exporter.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.exporter.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.histograms.register(key)
    }
}
