//! Metrics declared in one place per service: name, unit, help and buckets together.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics::Unit;
use metrics_exporter_prometheus::formatting::sanitize_label_value;
use tokio_util::sync::CancellationToken;

use super::recorder::Page;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Grows only, in whole numbers.
    Counter,
    /// Grows only, in fractions of a second. The recorder counts in whole numbers, so its owner appends it
    /// to the page with [`seconds_counter`].
    SecondsCounter,
    /// Goes up and down.
    Gauge,
    /// The same, of what comes and goes, such as engines. The recorder would keep its series for ever, so its owner
    /// appends those of what is there to the page with [`owned_gauge`].
    OwnedGauge,
    /// Distribution over these upper bounds.
    Histogram(&'static [f64]),
    /// The same, counted by its owner, who appends it to the page: an [`OwnedHistogram`](super::histogram::OwnedHistogram).
    OwnedHistogram(&'static [f64]),
}

impl Kind {
    /// What the text format of `/metrics` calls it.
    pub fn prometheus_type(&self) -> &'static str {
        match self {
            Self::Counter | Self::SecondsCounter => "counter",
            Self::Gauge | Self::OwnedGauge => "gauge",
            Self::Histogram(_) | Self::OwnedHistogram(_) => "histogram",
        }
    }
}

/// One metric: the only place where its name, unit and help stand.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Full name, `firstlight_…`, with its unit.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Base unit.
    pub unit: Unit,
    /// One sentence for people.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

impl Metric {
    /// The lines that stand before its series in the text format of `/metrics`.
    pub(super) fn heading(&self) -> String {
        let Self { name, kind, help, .. } = self;
        format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.prometheus_type())
    }
}

/// A label of a series in the text format of `/metrics`.
pub(super) fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", sanitize_label_value(value))
}

/// What the `metrics` subcommand prints: one declared metric a line, tab-separated under a heading.
pub fn listing(declared: &[Metric]) -> String {
    let mut lines = String::from("name\tkind\tunit\tlabels\thelp\n");
    for Metric { name, kind, unit, help, labels } in declared {
        let (kind, unit) = (kind.prometheus_type(), unit.as_str());
        lines += &format!("{name}\t{kind}\t{unit}\t{}\t{help}\n", labels.join(","));
    }
    lines
}

/// Buckets for the parts of TTFT, in seconds: 100 µs to 120 s.
pub const TTFT_BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 120.0,
];

/// A [`Kind::SecondsCounter`] with one label, in the text format of `/metrics`.
pub fn seconds_counter<'a>(
    metric: &Metric,
    samples: impl IntoIterator<Item = (&'a str, Duration)>,
) -> String {
    page(metric, samples.into_iter().map(|(label, time)| (label, time.as_secs_f64())))
}

/// A [`Kind::OwnedGauge`] with one label, in the text format of `/metrics`.
pub fn owned_gauge<'a>(metric: &Metric, samples: impl IntoIterator<Item = (&'a str, f64)>) -> String {
    page(metric, samples)
}

fn page<'a>(metric: &Metric, samples: impl IntoIterator<Item = (&'a str, f64)>) -> String {
    let Metric { name, labels, .. } = metric;
    let mut page = metric.heading();
    for (of, value) in samples {
        page += &format!("{name}{{{}}} {value}\n", label(labels[0], of));
    }
    page
}

/// Serves `/metrics` on `addr` until `stop`. `refresh` runs before each scrape, to bring live gauges up to date;
/// what it gives is appended to the page.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve<F, R>(
    addr: SocketAddr,
    page: Page,
    refresh: F,
    stop: CancellationToken,
) -> anyhow::Result<SocketAddr>
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = String> + Send,
{
    let listener = tokio::net::TcpListener::bind(addr)
        .await
        .with_context(|| format!("--metrics-listen {addr}: cannot listen"))?;
    let bound = listener.local_addr()?;
    let scrape = move || {
        let (refresh, page) = (refresh.clone(), page.clone());
        async move {
            let appended = refresh().await;
            ([(CONTENT_TYPE, "text/plain; version=0.0.4")], page.render() + &appended)
        }
    };
    let router = Router::new().route("/metrics", get(scrape));
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, "metrics listener ended");
        }
    });
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use metrics::describe_gauge;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    const LEVEL: Metric = Metric {
        name: "firstlight_test_level",
        kind: Kind::OwnedGauge,
        unit: Unit::Count,
        help: "A test.",
        labels: &["engine"],
    };

    #[test]
    fn an_owned_gauge_reads_as_the_recorder_would_write_it() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let name = "a \"b\" \\ c\nd";
        metrics::with_local_recorder(&recorder, || {
            describe_gauge!(LEVEL.name, LEVEL.help);
            metrics::gauge!(LEVEL.name, "engine" => name).set(1.5);
        });
        assert_eq!(owned_gauge(&LEVEL, [(name, 1.5)]).trim(), recorder.handle().render().trim());
    }
}
