//! Spans and forwards as they happen, to whoever watches. Each watcher has a bounded buffer: a slow reader
//! loses the oldest and is told how many. They are gathered for a moment: a message for each would cost more
//! than all the rest of telemetry. Until then they are kept as what was [told](Told), and made when they are sent.

use std::{
    collections::{HashSet, VecDeque},
    fmt::Debug,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU8, Ordering},
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
/// Spans and forwards in one batch.
const MAX_BATCH: usize = 512;
/// How long news are gathered for a batch that is not full: waking two processes costs as much as a dozen spans.
pub const GATHER: Duration = Duration::from_millis(500);

/// All watchers of this service.
#[derive(Debug, Default)]
pub struct SpanHub {
    watchers: Mutex<Vec<Weak<Watcher>>>,
    wanted: Wanted,
    losing: Share,
}

/// [`Topic`]s that anyone watches, one bit each. Read on the hot path: what nobody watches costs nothing. In a line of
/// its own: the lock beside it is written with every span.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Wanted(AtomicU8);

/// A kind of news that watchers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A span at the first token.
    FirstToken,
    /// A span at the end.
    Finished,
    /// In the scheduler's spans, what the engine stamped.
    Relayed,
    /// A forward.
    Forward,
}

impl Topic {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl From<v1::SpanEvent> for Topic {
    fn from(event: v1::SpanEvent) -> Self {
        match event {
            v1::SpanEvent::Finished => Self::Finished,
            v1::SpanEvent::FirstToken | v1::SpanEvent::Unspecified => Self::FirstToken,
        }
    }
}

/// Something that a span can be made of, once a batch is sent: until then what ended is kept as it is, which others may
/// share, and what a slow watcher loses was never made.
pub trait Told: Debug + Send + Sync {
    /// The request.
    fn request_id(&self) -> &str;
    /// Its run.
    fn run_label(&self) -> &str;
    /// When the span is released.
    fn event(&self) -> v1::SpanEvent;
    /// Whose stamps it holds, as what is lost without it.
    fn loss(&self) -> Loss;
    /// The span; with what the engine stamped where `relay_beside` is the clock domain of the scheduler that relays it.
    fn span(&self, relay_beside: Option<&v1::ClockDomain>) -> v1::Span;
}

impl Told for v1::Span {
    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn run_label(&self) -> &str {
        &self.run_label
    }

    fn event(&self) -> v1::SpanEvent {
        self.event()
    }

    fn loss(&self) -> Loss {
        match self.timeline {
            Some(v1::span::Timeline::Engine(_)) => Loss::EngineSpans,
            _ => Loss::SchedulerSpans,
        }
    }

    fn span(&self, relay_beside: Option<&v1::ClockDomain>) -> v1::Span {
        let span = self.clone();
        v1::Span { relayed: span.relayed.filter(|_| relay_beside.is_some()), ..span }
    }
}

impl SpanHub {
    /// A hub that loses the spans of a share of requests on purpose.
    pub fn losing(share: Share) -> Self {
        Self { losing: share, ..Self::default() }
    }

    /// Whether anyone asked for it; otherwise it need not be made.
    pub fn wants(&self, topic: Topic) -> bool {
        self.wanted.0.load(Ordering::Relaxed) & topic.bit() != 0
    }

    /// Gives the span of `told` to every watcher that asked for it. What was dropped for slow watchers by it.
    pub fn publish(&self, told: Arc<dyn Told>) -> u64 {
        if self.losing.takes(told.loss(), told.request_id()) {
            return 0;
        }
        let relays = !self.losing.takes(Loss::EngineSpans, told.request_id());
        self.offer(&News::Span { told, relays })
    }

    /// Gives `forward` to every watcher that asked for forwards. What was dropped for slow watchers by it.
    pub fn publish_forward(&self, forward: v1::Forward) -> u64 {
        self.offer(&News::Forward(Arc::new(forward)))
    }

    fn offer(&self, news: &News) -> u64 {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = watchers.len();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        if watchers.len() < gone {
            self.note_wanted(&watchers);
        }
        watchers.iter().filter_map(Weak::upgrade).map(|watcher| watcher.offer(news)).sum()
    }

    fn note_wanted(&self, watchers: &[Weak<Watcher>]) {
        let wanted = watchers.iter().filter_map(Weak::upgrade).fold(0, |all, watcher| all | watcher.topics);
        self.wanted.0.store(wanted, Ordering::Relaxed);
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
        let events = request.events.iter().map(|&event| v1::SpanEvent::try_from(event).map(Topic::from));
        let events: Vec<Topic> = events
            .collect::<Result<_, _>>()
            .map_err(|unknown| Failure::Invalid { field: "events", reason: unknown.to_string() })?;
        let own = if events.is_empty() { &[Topic::FirstToken, Topic::Finished][..] } else { &events };
        let asked = [(Topic::Relayed, request.relay_engines), (Topic::Forward, request.forwards)];
        let asked = asked.into_iter().filter(|(_, asked)| *asked).map(|(topic, _)| topic);
        let watcher = Arc::new(Watcher {
            ids: request.request_ids.into_iter().collect(),
            run_label: request.run_label,
            topics: own.iter().copied().chain(asked).fold(0, |all, topic| all | topic.bit()),
            capacity: buffer as usize,
            queue: Mutex::default(),
            waker: AtomicWaker::new(),
        });
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push(Arc::downgrade(&watcher));
        self.note_wanted(&watchers);
        Ok(SpanStream { watcher, name: name.to_owned(), domain: domain.clone(), gather: None })
    }
}

#[derive(Debug)]
struct Watcher {
    ids: HashSet<String>,
    run_label: String,
    topics: u8,
    capacity: usize,
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

/// What watchers are told.
#[derive(Clone, Debug)]
enum News {
    Span { told: Arc<dyn Told>, relays: bool },
    Forward(Arc<v1::Forward>),
}

#[derive(Debug, Default)]
struct Queue {
    news: VecDeque<News>,
    dropped: u64,
}

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wants(&self, news: &News) -> bool {
        match news {
            News::Span { told, .. } => {
                self.topics & Topic::from(told.event()).bit() != 0
                    && (self.ids.is_empty() || self.ids.contains(told.request_id()))
                    && (self.run_label.is_empty() || self.run_label == told.run_label())
            }
            News::Forward(_) => self.topics & Topic::Forward.bit() != 0,
        }
    }

    /// Takes the news if they were asked for; 1 when older ones had to go for them.
    fn offer(&self, news: &News) -> u64 {
        if !self.wants(news) {
            return 0;
        }
        let mut queue = self.lock();
        let full = queue.news.len() >= self.capacity;
        if full {
            queue.news.pop_front();
            queue.dropped += 1;
        }
        queue.news.push_back(news.clone());
        let due = matches!(queue.news.len(), 1 | MAX_BATCH);
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
        let waiting = this.watcher.lock().news.len();
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
        let most = queue.news.len().min(MAX_BATCH);
        let news: Vec<_> = queue.news.drain(..most).collect();
        let dropped = std::mem::take(&mut queue.dropped);
        drop(queue);
        let mut batch = v1::SpanBatch {
            dropped,
            domain: Some(self.domain.clone()),
            name: self.name.clone(),
            spans: Vec::with_capacity(most),
            forwards: Vec::new(),
        };
        let wanted = self.watcher.topics & Topic::Relayed.bit() != 0;
        for news in news {
            match news {
                News::Span { told, relays } => {
                    batch.spans.push(told.span((relays && wanted).then_some(&self.domain)));
                }
                News::Forward(forward) => batch.forwards.push(Arc::unwrap_or_clone(forward)),
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn span(id: &str, run: &str) -> Arc<v1::Span> {
        Arc::new(v1::Span { request_id: id.into(), run_label: run.into(), ..Default::default() })
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
            hub.publish(span(id, ""));
        }
        let batch = spans.next().await.unwrap().unwrap();
        assert_eq!((ids(&batch), batch.dropped), (vec!["c", "d"], 2));
        hub.publish(span("e", ""));
        assert_eq!(spans.next().await.unwrap().unwrap().dropped, 0);
    }

    #[tokio::test]
    async fn a_watcher_sees_what_it_asked_for() {
        let hub = SpanHub::default();
        let mut one = watch(&hub, v1::WatchSpansRequest { run_label: "run".into(), ..Default::default() });
        let mut all = watch(&hub, v1::WatchSpansRequest { relay_engines: true, ..Default::default() });
        for s in [span("a", "run"), span("b", "")] {
            let relayed = Some(v1::EngineTimeline::default());
            hub.publish(Arc::new(v1::Span { relayed, ..Arc::unwrap_or_clone(s) }));
        }
        let (one, all) = (one.next().await.unwrap().unwrap(), all.next().await.unwrap().unwrap());
        assert_eq!((ids(&one), ids(&all)), (vec!["a"], vec!["a", "b"]));
        assert!(one.spans[0].relayed.is_none() && all.spans.iter().all(|s| s.relayed.is_some()));
    }

    #[tokio::test]
    async fn forwards_come_to_those_who_ask_for_them_among_the_spans() {
        let hub = SpanHub::default();
        let mut with = watch(&hub, v1::WatchSpansRequest { forwards: true, ..Default::default() });
        let mut without = watch(&hub, v1::WatchSpansRequest::default());
        hub.publish_forward(v1::Forward { decode_rows: 7, ..Default::default() });
        hub.publish(span("a", ""));
        let batch = with.next().await.unwrap().unwrap();
        assert_eq!((ids(&batch), batch.forwards[0].decode_rows), (vec!["a"], 7));
        assert!(without.next().await.unwrap().unwrap().forwards.is_empty());
    }

    #[tokio::test]
    async fn only_what_somebody_asked_for_need_be_made() {
        let hub = SpanHub::default();
        let all = [Topic::FirstToken, Topic::Finished, Topic::Relayed, Topic::Forward];
        let wanted = |hub: &SpanHub| all.map(|topic| hub.wants(topic));
        assert_eq!(wanted(&hub), [false; 4]);
        let events = vec![v1::SpanEvent::Finished.into()];
        let mut ends = watch(&hub, v1::WatchSpansRequest { events, ..Default::default() });
        assert_eq!(wanted(&hub), [false, true, false, false]);
        let everything = v1::WatchSpansRequest { relay_engines: true, forwards: true, ..Default::default() };
        let _all = watch(&hub, everything);
        assert_eq!(wanted(&hub), [true; 4]);
        for event in [v1::SpanEvent::FirstToken, v1::SpanEvent::Finished] {
            hub.publish(Arc::new(v1::Span { event: event.into(), ..v1::Span::default() }));
        }
        let batch = ends.next().await.unwrap().unwrap();
        assert_eq!(batch.spans.iter().map(v1::Span::event).collect::<Vec<_>>(), [v1::SpanEvent::Finished]);
    }

    #[test]
    fn an_event_that_is_none_is_refused() {
        let request = v1::WatchSpansRequest { events: vec![9], ..Default::default() };
        let refused = SpanHub::default().watch(request, "scheduler", &v1::ClockDomain::default());
        assert!(matches!(refused, Err(Failure::Invalid { field: "events", .. })), "{refused:?}");
    }

    #[test]
    fn nobody_is_served_after_hanging_up() {
        let hub = SpanHub::default();
        drop(watch(&hub, v1::WatchSpansRequest::default()));
        hub.publish(span("a", ""));
        assert!(!hub.wants(Topic::FirstToken) && !hub.wants(Topic::Finished));
    }
}
