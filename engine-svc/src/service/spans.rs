//! Who watches spans, and what waits for them. A slow watcher loses the oldest spans and is told how many.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use firstlight_proto::{
    inject::loss::{Loss, Share},
    v1::{Span, WatchSpansRequest},
};
use tokio::sync::Notify;

use crate::metrics;

/// Spans a watcher keeps when it does not say.
const DEFAULT_BUFFER: usize = 65_536;
/// Most it may ask for.
const MAX_BUFFER: usize = 1 << 20;
/// Spans per message, so that one stays well below the decode limit.
const BATCH: usize = 512;

/// Hands each span to every watcher that wants it.
#[derive(Debug, Default)]
pub struct SpanHub {
    watchers: Mutex<Vec<Arc<Watcher>>>,
    count: AtomicUsize,
    losing: Share,
}

/// One watcher's place in the hub; leaves it when dropped.
#[derive(Debug)]
pub struct Watch {
    hub: Arc<SpanHub>,
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    request_ids: HashSet<String>,
    run_label: String,
    capacity: usize,
    buffer: Mutex<Buffer>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Buffer {
    spans: VecDeque<Span>,
    dropped: u64,
}

impl SpanHub {
    /// A hub that loses the spans of a share of requests on purpose.
    pub fn losing(share: Share) -> Self {
        Self { losing: share, ..Self::default() }
    }

    /// Whether making a span is worth the while.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Hands `span` to every watcher that wants it; never waits for one.
    pub fn publish(&self, span: Span) {
        if self.losing.takes(Loss::EngineSpans, &span.request_id) {
            return;
        }
        for watcher in lock(&self.watchers).iter().filter(|watcher| watcher.wants(&span)) {
            watcher.push(span.clone());
        }
    }

    /// A new watcher.
    pub fn watch(self: &Arc<Self>, request: WatchSpansRequest) -> Watch {
        let capacity = match request.buffer as usize {
            0 => DEFAULT_BUFFER,
            buffer => buffer.min(MAX_BUFFER),
        };
        let watcher = Arc::new(Watcher {
            request_ids: request.request_ids.into_iter().collect(),
            run_label: request.run_label,
            capacity,
            buffer: Mutex::default(),
            more: Notify::new(),
        });
        lock(&self.watchers).push(watcher.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        Watch { hub: self.clone(), watcher }
    }
}

impl Watch {
    /// The next spans, oldest first, and how many were dropped before them. Waits until there is something.
    pub async fn next(&self) -> (Vec<Span>, u64) {
        loop {
            let (spans, dropped) = self.watcher.take();
            if !spans.is_empty() || dropped > 0 {
                return (spans, dropped);
            }
            self.watcher.more.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.hub.watchers).retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
        self.hub.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watcher {
    fn wants(&self, span: &Span) -> bool {
        (self.run_label.is_empty() || self.run_label == span.run_label)
            && (self.request_ids.is_empty() || self.request_ids.contains(&span.request_id))
    }

    fn push(&self, span: Span) {
        let mut buffer = lock(&self.buffer);
        if buffer.spans.len() == self.capacity {
            buffer.spans.pop_front();
            buffer.dropped += 1;
            metrics::spans_dropped().increment(1);
        }
        buffer.spans.push_back(span);
        drop(buffer);
        self.more.notify_one();
    }

    fn take(&self) -> (Vec<Span>, u64) {
        let mut buffer = lock(&self.buffer);
        let n = buffer.spans.len().min(BATCH);
        (buffer.spans.drain(..n).collect(), std::mem::take(&mut buffer.dropped))
    }
}

/// A panic of another holder leaves nothing half done in these.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(request_id: &str, run_label: &str) -> Span {
        Span { request_id: request_id.into(), run_label: run_label.into(), ..Span::default() }
    }

    #[tokio::test]
    async fn a_slow_watcher_loses_the_oldest_and_is_told_how_many() {
        let hub = Arc::new(SpanHub::default());
        let watch = hub.watch(WatchSpansRequest { buffer: 2, ..Default::default() });
        for id in ["a", "b", "c", "d"] {
            hub.publish(span(id, ""));
        }
        let (spans, dropped) = watch.next().await;
        assert_eq!(spans.iter().map(|span| &*span.request_id).collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(dropped, 2);
    }

    #[tokio::test]
    async fn a_watcher_gets_only_what_it_asked_for() {
        let hub = Arc::new(SpanHub::default());
        let by_run = hub.watch(WatchSpansRequest { run_label: "r1".into(), ..Default::default() });
        let by_id = hub.watch(WatchSpansRequest { request_ids: vec!["b".into()], ..Default::default() });
        hub.publish(span("a", "r1"));
        hub.publish(span("b", "r2"));
        assert_eq!(by_run.next().await.0, [span("a", "r1")]);
        assert_eq!(by_id.next().await.0, [span("b", "r2")]);
    }

    #[test]
    fn a_watcher_that_leaves_is_forgotten() {
        let hub = Arc::new(SpanHub::default());
        let watch = hub.watch(WatchSpansRequest::default());
        assert!(hub.is_watched());
        drop(watch);
        assert!(!hub.is_watched());
    }
}
