//! A histogram that its owner counts itself: for what is observed with every token, where the recorder's queue of
//! observations costs more than the work that is measured.

use std::fmt::Write as _;

use super::metrics::{Kind, Metric};

/// Observations of one [`Kind::OwnedHistogram`] without labels.
#[derive(Debug)]
pub struct OwnedHistogram {
    metric: &'static Metric,
    buckets: &'static [f64],
    /// One more than `buckets`: the last holds what is beyond them.
    counts: Vec<u64>,
    sum: f64,
}

impl OwnedHistogram {
    /// No observations.
    ///
    /// # Panics
    /// When `metric` is of another kind or has labels.
    pub fn new(metric: &'static Metric) -> Self {
        let Kind::OwnedHistogram(buckets) = metric.kind else { panic!("{} is another kind", metric.name) };
        assert!(metric.labels.is_empty(), "{} has labels", metric.name);
        Self { metric, buckets, counts: vec![0; buckets.len() + 1], sum: 0.0 }
    }

    /// Counts one observation, in the metric's unit.
    pub fn record(&mut self, value: f64) {
        self.counts[self.buckets.partition_point(|&bound| bound < value)] += 1;
        self.sum += value;
    }

    /// The histogram in the text format of `/metrics`.
    pub fn page(&self) -> String {
        let Metric { name, help, .. } = self.metric;
        let mut page = format!("# HELP {name} {help}\n# TYPE {name} histogram\n");
        let bounds = self.buckets.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            total += count;
            let _ = writeln!(page, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let _ = write!(page, "{name}_sum {}\n{name}_count {total}\n", self.sum);
        page
    }
}

#[cfg(test)]
mod tests {
    use metrics::Unit;
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

    use super::*;

    const BUCKETS: &[f64] = &[0.00025, 0.001, 0.5, 1.0, 30.0];
    static METRIC: Metric = Metric {
        name: "firstlight_test_seconds",
        kind: Kind::OwnedHistogram(BUCKETS),
        unit: Unit::Seconds,
        help: "A test.",
        labels: &[],
    };

    #[test]
    fn reads_as_the_recorder_would_write_it() {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(METRIC.name.to_owned()), BUCKETS)
            .unwrap()
            .build_recorder();
        let mut owned = OwnedHistogram::new(&METRIC);
        metrics::with_local_recorder(&recorder, || {
            metrics::describe_histogram!(METRIC.name, METRIC.help);
            let theirs = metrics::histogram!(METRIC.name);
            for value in [0.0, 0.00025, 0.000_250_1, 0.25, 0.5, 1.0, 29.5, 30.0, 31.0, 1e6] {
                theirs.record(value);
                owned.record(value);
            }
        });
        assert_eq!(owned.page().trim(), recorder.handle().render().trim());
    }
}
