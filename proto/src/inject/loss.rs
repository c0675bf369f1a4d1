//! Telemetry lost on purpose. Which requests lose what is a function of their ids, so that a test can tell from
//! outside which chains must lack which stamps.

use std::str::FromStr;

/// What a request can lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Every span with the scheduler's stamps.
    SchedulerSpans,
    /// Every span with the engine's stamps, direct or relayed.
    EngineSpans,
    /// The timeline of its final message.
    Timeline,
}

/// Share of requests that lose something, 0 to 1; none in normal operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Every request.
    pub const ALL: Self = Self(1.0);

    /// Whether the request of this id is among those that lose `what`.
    pub fn takes(self, what: Loss, request_id: &str) -> bool {
        self.0 > 0.0 && uniform(what, request_id) < self.0
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let share: f64 = s.parse().map_err(|e| format!("{s:?} is no number: {e}"))?;
        (0.0..=1.0).contains(&share).then_some(Self(share)).ok_or_else(|| format!("{s} is not within 0 to 1"))
    }
}

/// Evenly spread over [0, 1): FNV-1a, then the finalizer of SplitMix64.
fn uniform(what: Loss, request_id: &str) -> f64 {
    let seed = 0xcbf2_9ce4_8422_2325 ^ what as u64;
    let hash = request_id.bytes().fold(seed, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut z = hash;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_kept_and_what_is_lost_is_independent() {
        let share: Share = "0.1".parse().unwrap();
        let ids: Vec<String> = (0..20_000).map(|i| format!("run-{i}")).collect();
        let lost = |what| ids.iter().filter(|id| share.takes(what, id)).count();
        for what in [Loss::SchedulerSpans, Loss::EngineSpans, Loss::Timeline] {
            assert!((1_700..2_300).contains(&lost(what)), "{what:?}: {}", lost(what));
        }
        let both = |id: &&String| share.takes(Loss::SchedulerSpans, id) && share.takes(Loss::Timeline, id);
        let both = ids.iter().filter(both).count();
        assert!((120..280).contains(&both), "{both} of 20000 lose both");
    }

    #[test]
    fn a_share_is_between_nothing_and_everything() {
        assert!(!Share::default().takes(Loss::Timeline, "r"));
        assert!("1".parse::<Share>().unwrap().takes(Loss::Timeline, "r"));
        assert!("1.1".parse::<Share>().is_err() && "NaN".parse::<Share>().is_err());
    }
}
