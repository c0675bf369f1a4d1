//! Spans as they happen, to whoever watches. Each watcher has a bounded buffer: a slow reader loses the
//! oldest spans and is told how many. Spans are gathered for a moment: a message for each would cost more
//! than all the rest of telemetry.

use std::{
    collections::{HashSet, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{Stream, task::AtomicWaker};
use tokio::time::Sleep;
use tonic::Status;

use crate::{
    error::Failure,
    inject::loss::{Loss, Share},
    v1,
};

/// Buffer of a watcher that does not ask for another.
const DEFAULT_BUFFER: u32 = 65_536;
/// Largest buffer.
const MAX_BUFFER: u32 = 1 << 20;
/// Spans in one batch.
const MAX_BATCH: usize = 512;
/// How long spans are gathered for a batch that is not full.
const GATHER: Duration = Duration::from_millis(25);

/// All watchers of this service.
#[derive(Debug, Default)]
pub struct SpanHub {
    watchers: Mutex<Vec<Weak<Watcher>>>,
    /// Read on the hot path: nobody watching costs nothing.
    count: AtomicUsize,
    losing: Share,
}

impl SpanHub {
    /// A hub that loses the spans of a share of requests on purpose.
    pub fn losing(share: Share) -> Self {
        Self { losing: share, ..Self::default() }
    }

    /// Whether anyone watches; otherwise spans need not be made.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Gives `span` to every watcher that asked for it. Spans dropped for slow watchers by it.
    pub fn publish(&self, span: v1::Span) -> u64 {
        let loss = match span.timeline {
            Some(v1::span::Timeline::Engine(_)) => Loss::EngineSpans,
            _ => Loss::SchedulerSpans,
        };
        if self.losing.takes(loss, &span.request_id) {
            return 0;
        }
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        self.count.store(watchers.len(), Ordering::Relaxed);
        let span = Arc::new(span);
        watchers.iter().filter_map(Weak::upgrade).map(|watcher| watcher.offer(&span)).sum()
    }

    /// Starts watching. `name` and `domain` are of this service.
    ///
    /// # Errors
    /// When the buffer asked for is too large.
    pub fn watch(
        &self,
        request: v1::WatchSpansRequest,
        name: &str,
        domain: &v1::ClockDomain,
    ) -> Result<SpanStream, Failure> {
        let buffer = match request.buffer {
            0 => DEFAULT_BUFFER,
            n @ 1..=MAX_BUFFER => n,
            n => {
                let reason = format!("{n} spans; at most {MAX_BUFFER}");
                return Err(Failure::Invalid { field: "buffer", reason });
            }
        };
        let watcher = Arc::new(Watcher {
            ids: request.request_ids.into_iter().collect(),
            run_label: request.run_label,
            relayed: request.relay_engines,
            capacity: buffer as usize,
            queue: Mutex::default(),
            waker: AtomicWaker::new(),
        });
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push(Arc::downgrade(&watcher));
        self.count.store(watchers.len(), Ordering::Relaxed);
        Ok(SpanStream { watcher, name: name.to_owned(), domain: domain.clone(), gather: None })
    }
}

#[derive(Debug)]
struct Watcher {
    ids: HashSet<String>,
    run_label: String,
    relayed: bool,
    capacity: usize,
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<Arc<v1::Span>>,
    dropped: u64,
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the span if it was asked for; 1 when an older one had to go for it.
    fn offer(&self, span: &Arc<v1::Span>) -> u64 {
        let wanted = (self.ids.is_empty() || self.ids.contains(&span.request_id))
            && (self.run_label.is_empty() || self.run_label == span.run_label)
            && (self.relayed || !span.relayed);
        if !wanted {
            return 0;
        }
        let mut queue = self.lock();
        let full = queue.spans.len() >= self.capacity;
        if full {
            queue.spans.pop_front();
            queue.dropped += 1;
        }
        queue.spans.push_back(span.clone());
        let due = matches!(queue.spans.len(), 1 | MAX_BATCH);
        drop(queue);
        if due {
            self.waker.wake();
        }
        u64::from(full)
    }
}

/// The spans of one watcher, in batches.
#[derive(Debug)]
pub struct SpanStream {
    watcher: Arc<Watcher>,
    name: String,
    domain: v1::ClockDomain,
    gather: Option<Pin<Box<Sleep>>>,
}

impl Stream for SpanStream {
    type Item = Result<v1::SpanBatch, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.watcher.waker.register(cx.waker());
        let waiting = this.watcher.lock().spans.len();
        if waiting == 0 {
            return Poll::Pending;
        }
        if waiting < MAX_BATCH {
            let gather = this.gather.get_or_insert_with(|| Box::pin(tokio::time::sleep(GATHER)));
            ready!(gather.as_mut().poll(cx));
        }
        this.gather = None;
        Poll::Ready(Some(Ok(this.batch())))
    }
}

impl SpanStream {
    fn batch(&self) -> v1::SpanBatch {
        let mut queue = self.watcher.lock();
        let most = queue.spans.len().min(MAX_BATCH);
        let spans: Vec<_> = queue.spans.drain(..most).collect();
        let dropped = std::mem::take(&mut queue.dropped);
        drop(queue);
        v1::SpanBatch {
            spans: spans.into_iter().map(Arc::unwrap_or_clone).collect(),
            dropped,
            domain: Some(self.domain.clone()),
            name: self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn span(id: &str, run: &str, relayed: bool) -> v1::Span {
        v1::Span { request_id: id.into(), run_label: run.into(), relayed, ..Default::default() }
    }

    fn watch(hub: &SpanHub, request: v1::WatchSpansRequest) -> SpanStream {
        hub.watch(request, "scheduler", &v1::ClockDomain::default()).unwrap()
    }

    fn ids(batch: &v1::SpanBatch) -> Vec<&str> {
        batch.spans.iter().map(|s| s.request_id.as_str()).collect()
    }

    #[tokio::test]
    async fn a_slow_watcher_loses_the_oldest_and_is_told_how_many() {
        let hub = SpanHub::default();
        let mut spans = watch(&hub, v1::WatchSpansRequest { buffer: 2, ..Default::default() });
        for id in ["a", "b", "c", "d"] {
            hub.publish(span(id, "", false));
        }
        let batch = spans.next().await.unwrap().unwrap();
        assert_eq!((ids(&batch), batch.dropped), (vec!["c", "d"], 2));
        hub.publish(span("e", "", false));
        assert_eq!(spans.next().await.unwrap().unwrap().dropped, 0);
    }

    #[tokio::test]
    async fn a_watcher_sees_what_it_asked_for() {
        let hub = SpanHub::default();
        let mut one = watch(&hub, v1::WatchSpansRequest { run_label: "run".into(), ..Default::default() });
        let mut all = watch(&hub, v1::WatchSpansRequest { relay_engines: true, ..Default::default() });
        for s in [span("a", "run", false), span("b", "", false), span("a", "run", true)] {
            hub.publish(s);
        }
        assert_eq!(ids(&one.next().await.unwrap().unwrap()), ["a"]);
        assert_eq!(ids(&all.next().await.unwrap().unwrap()), ["a", "b", "a"]);
    }

    #[test]
    fn nobody_is_served_after_hanging_up() {
        let hub = SpanHub::default();
        drop(watch(&hub, v1::WatchSpansRequest::default()));
        hub.publish(span("a", "", false));
        assert!(!hub.is_watched());
    }
}
