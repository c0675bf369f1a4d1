//! Known delays at the hand-overs between segments. A breakdown is tested by truth, not by arithmetic:
//! a delay injected at one hand-over must appear in that segment and nowhere else. [`loss`] takes spans and
//! timelines away.

pub mod loss;

use std::{str::FromStr, time::Duration};

/// A segment of the TTFT chain that a process can delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Client: between the intended send time and the hand-over to the transport.
    ClientLag,
    /// Scheduler: before the request's `received` stamp.
    Ingress,
    /// Scheduler: between `received` and `queued`.
    Accept,
    /// Scheduler: between `queued` and `admit_ts`.
    QueueWait,
    /// Scheduler: between `admit_ts` and the hand-over to the engine's stream.
    Dispatch,
    /// Engine: between `received` and `admit_ts`.
    EngineWait,
    /// Engine: between `admit_ts` and `first_token_ts`.
    Prefill,
    /// Engine: between `first_token_ts` and the hand-over of its step.
    Return,
    /// Scheduler: between `first_token_ts` and the hand-over to the client's stream.
    Deliver,
}

impl Segment {
    /// All nine, in the order of the chain.
    pub const ALL: [Self; 9] = [
        Self::ClientLag,
        Self::Ingress,
        Self::Accept,
        Self::QueueWait,
        Self::Dispatch,
        Self::EngineWait,
        Self::Prefill,
        Self::Return,
        Self::Deliver,
    ];

    /// The segment's name everywhere.
    pub fn label(self) -> &'static str {
        match self {
            Self::ClientLag => "client_lag",
            Self::Ingress => "ingress",
            Self::Accept => "accept",
            Self::QueueWait => "queue_wait",
            Self::Dispatch => "dispatch",
            Self::EngineWait => "engine_wait",
            Self::Prefill => "prefill",
            Self::Return => "return",
            Self::Deliver => "deliver",
        }
    }
}

/// One delay to inject, written `SEGMENT=MS`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Injection {
    /// Where.
    pub segment: Segment,
    /// How long.
    pub delay: Duration,
}

impl FromStr for Injection {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (name, ms) = s.split_once('=').ok_or_else(|| format!("{s:?} is not SEGMENT=MS"))?;
        let segment = Segment::ALL.into_iter().find(|x| x.label() == name).ok_or_else(|| {
            format!("unknown segment {name:?}; one of {}", Segment::ALL.map(Segment::label).join(", "))
        })?;
        let ms: f64 = ms.parse().map_err(|e| format!("{ms:?} is no number of ms: {e}"))?;
        let delay = Duration::try_from_secs_f64(ms / 1e3).map_err(|e| format!("{ms} ms: {e}"))?;
        Ok(Self { segment, delay })
    }
}

/// The delays of one process; empty in normal operation.
#[derive(Clone, Debug, Default)]
pub struct Injections(Vec<Injection>);

impl Injections {
    /// From the values of a repeated `--inject-delay` flag.
    pub fn new(list: Vec<Injection>) -> Self {
        Self(list)
    }

    /// The delay to add at the hand-over into `segment`.
    pub fn at(&self, segment: Segment) -> Option<Duration> {
        self.0.iter().find(|i| i.segment == segment).map(|i| i.delay)
    }

    /// Waits the delay of `segment`, if it has one.
    pub async fn wait(&self, segment: Segment) {
        if let Some(delay) = self.at(segment) {
            tokio::time::sleep(delay).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_injection_names_its_segment_and_its_milliseconds() {
        let i: Injection = "engine_wait=2.5".parse().unwrap();
        assert_eq!((i.segment, i.delay), (Segment::EngineWait, Duration::from_micros(2500)));
        assert_eq!(Injections::new(vec![i]).at(Segment::EngineWait), Some(i.delay));
        assert_eq!(Injections::new(vec![i]).at(Segment::Prefill), None);
    }

    #[test]
    fn a_wrong_injection_says_what_would_be_right() {
        assert!("nowhere=1".parse::<Injection>().unwrap_err().contains("engine_wait"));
        assert!("accept=-1".parse::<Injection>().is_err());
        assert!("accept".parse::<Injection>().unwrap_err().contains("SEGMENT=MS"));
    }
}
