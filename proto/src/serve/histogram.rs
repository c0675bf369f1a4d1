//! Histograms as Prometheus reads them: a number per bucket, counted up where the observation is made. The exporter's
//! own keep every observation, with a time stamp, until somebody scrapes; under load that costs more than all other
//! metrics together. What is observed with every token its owner counts without atomics: [`OwnedHistogram`].

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Histogram, HistogramFn, Key, Label};

use super::metrics::{Kind, Metric, label};

/// All histograms of a service.
#[derive(Debug)]
pub struct Histograms {
    declared: Vec<Metric>,
    series: Mutex<BTreeMap<Key, Arc<Series>>>,
}

/// Most buckets of a histogram, the one beyond all bounds included.
const MOST: usize = 32;

/// One histogram with one set of labels, in one piece: most observations find it in no cache.
#[derive(Debug)]
struct Series {
    bounds: &'static [f64],
    /// Bits of an `f64`.
    sum: AtomicU64,
    /// One more in use than `bounds`: the last holds what is beyond them.
    counts: [AtomicU64; MOST],
}

impl Histograms {
    /// Those among `declared`; none has a series yet.
    pub fn new(declared: &[Metric]) -> Self {
        let declared = declared.iter().filter(|metric| matches!(metric.kind, Kind::Histogram(_))).copied();
        Self { declared: declared.collect(), series: Mutex::default() }
    }

    /// The series of `key`, which starts at 0 when it is new. What is not declared is not recorded.
    pub fn register(&self, key: &Key) -> Histogram {
        let declared =
            self.declared.iter().find(|metric| metric.name == key.name()).map(|metric| metric.kind);
        let Some(Kind::Histogram(bounds)) = declared else {
            tracing::error!(name = key.name(), "a histogram that is not declared: not recorded");
            return Histogram::noop();
        };
        let mut series = self.lock();
        let new = || Arc::new(Series::new(bounds));
        Histogram::from_arc(Arc::clone(series.entry(key.clone()).or_insert_with(new)))
    }

    /// All series in the text format of `/metrics`.
    pub fn page(&self) -> String {
        let series = self.lock();
        let mut page = String::new();
        for metric in &self.declared {
            let mut of_it = series.iter().filter(|(key, _)| key.name() == metric.name).peekable();
            if of_it.peek().is_some() {
                page += &metric.heading();
            }
            for (key, series) in of_it {
                let counts =
                    series.counts[..=series.bounds.len()].iter().map(|count| count.load(Ordering::Relaxed));
                let sum = f64::from_bits(series.sum.load(Ordering::Relaxed));
                write(&mut page, metric.name, &in_words(key.labels()), series.bounds, counts, sum);
            }
        }
        page
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Series>>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    fn new(bounds: &'static [f64]) -> Self {
        assert!(bounds.len() < MOST, "{} bounds; at most {}", bounds.len(), MOST - 1);
        Self { bounds, sum: AtomicU64::new(0.0_f64.to_bits()), counts: [const { AtomicU64::new(0) }; MOST] }
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.counts[bucket_of(self.bounds, value)].fetch_add(1, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        // It always gives a new sum.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// Observations of one [`Kind::OwnedHistogram`], which has no labels, by the one who makes them.
#[derive(Debug)]
pub struct OwnedHistogram {
    metric: &'static Metric,
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    /// Bucket of the last observation: most often also that of the next.
    last: usize,
}

impl OwnedHistogram {
    /// No observations.
    ///
    /// # Panics
    /// When `metric` is of another kind or has labels.
    pub fn new(metric: &'static Metric) -> Self {
        let Kind::OwnedHistogram(bounds) = metric.kind else { panic!("{} is another kind", metric.name) };
        assert!(metric.labels.is_empty(), "{} has labels", metric.name);
        Self { metric, bounds, counts: vec![0; bounds.len() + 1], sum: 0.0, last: 0 }
    }

    /// Counts one observation, in the metric's unit.
    pub fn record(&mut self, value: f64) {
        if !self.holds(self.last, value) {
            self.last = bucket_of(self.bounds, value);
        }
        self.counts[self.last] += 1;
        self.sum += value;
    }

    fn holds(&self, bucket: usize, value: f64) -> bool {
        let below = bucket.checked_sub(1).and_then(|below| self.bounds.get(below));
        below.is_none_or(|&bound| bound < value)
            && self.bounds.get(bucket).is_none_or(|&bound| value <= bound)
    }

    /// The histogram in the text format of `/metrics`.
    pub fn page(&self) -> String {
        let mut page = self.metric.heading();
        write(&mut page, self.metric.name, "", self.bounds, self.counts.iter().copied(), self.sum);
        page
    }
}

/// Which count is of `value`: a bound belongs to the bucket below it.
fn bucket_of(bounds: &[f64], value: f64) -> usize {
    bounds.partition_point(|&bound| bound < value)
}

/// One series: `labels` are in words, `counts` one more than `bounds`.
fn write(
    page: &mut String,
    name: &str,
    labels: &str,
    bounds: &[f64],
    counts: impl Iterator<Item = u64>,
    sum: f64,
) {
    let (comma, braced) =
        if labels.is_empty() { ("", String::new()) } else { (",", format!("{{{labels}}}")) };
    let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    let mut total = 0;
    for (bound, count) in bounds.zip(counts) {
        total += count;
        let _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}");
    }
    let _ = write!(page, "{name}_sum{braced} {sum}\n{name}_count{braced} {total}\n");
}

fn in_words<'a>(labels: impl Iterator<Item = &'a Label>) -> String {
    labels.map(|of| label(of.key(), of.value())).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use metrics::Unit;
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

    use super::*;
    use crate::serve::recorder::recorder;

    const BUCKETS: &[f64] = &[0.00025, 0.001, 0.5, 1.0, 30.0];
    const OBSERVED: [f64; 11] = [0.0, 0.00025, 0.000_250_1, 0.25, 0.5, 1.0, 29.5, 30.0, 31.0, -1.0, 1e6];
    const NAME: &str = "firstlight_test_seconds";
    const METRIC: Metric = Metric {
        name: NAME,
        kind: Kind::Histogram(BUCKETS),
        unit: Unit::Seconds,
        help: "A test.",
        labels: &["kind", "who"],
    };

    fn observe(labels: Vec<Label>) {
        metrics::describe_histogram!(NAME, METRIC.help);
        let histogram = metrics::histogram!(NAME, labels);
        OBSERVED.iter().for_each(|value| histogram.record(*value));
    }

    #[test]
    fn reads_as_the_exporter_would_write_it() {
        let named = vec![Label::new("kind", "a \"b\" \\ c\nd"), Label::new("who", "e")];
        for labels in [vec![], named] {
            let theirs = PrometheusBuilder::new()
                .set_buckets_for_metric(Matcher::Full(NAME.to_owned()), BUCKETS)
                .unwrap()
                .build_recorder();
            metrics::with_local_recorder(&theirs, || observe(labels.clone()));
            let (ours, page) = recorder(&[METRIC]);
            metrics::with_local_recorder(&ours, || observe(labels));
            assert_eq!(page.render().trim(), theirs.handle().render().trim());
        }
    }

    #[test]
    fn one_that_its_owner_counts_reads_the_same() {
        static OWNED: Metric = Metric { kind: Kind::OwnedHistogram(BUCKETS), labels: &[], ..METRIC };
        let mut owned = OwnedHistogram::new(&OWNED);
        OBSERVED.iter().for_each(|value| owned.record(*value));
        let (ours, page) = recorder(&[METRIC]);
        metrics::with_local_recorder(&ours, || observe(vec![]));
        assert_eq!(owned.page().trim(), page.render().trim());
    }

    #[test]
    fn two_handles_of_the_same_labels_count_together() {
        let (ours, page) = recorder(&[METRIC]);
        metrics::with_local_recorder(&ours, || {
            for _ in 0..2 {
                metrics::histogram!(NAME, "who" => "e").record(0.25);
            }
            metrics::histogram!(NAME, "who" => "f").record(0.25);
            metrics::histogram!("firstlight_undeclared").record(1.0);
        });
        let page = page.render();
        assert!(page.contains("firstlight_test_seconds_sum{who=\"e\"} 0.5\n"), "{page}");
        assert!(page.contains("firstlight_test_seconds_count{who=\"f\"} 1\n"), "{page}");
        assert!(!page.contains("undeclared"), "{page}");
    }
}
