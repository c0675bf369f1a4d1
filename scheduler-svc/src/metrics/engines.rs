//! Gauges of each engine, written when a scrape asks, of those that are attached then: one that has left leaves none.

use std::collections::BTreeMap;

use firstlight_proto::serve::metrics::{Metric, owned_gauge};

use super::{
    declared::{
        CLOCK_BOUND, CLOCK_OFFSET, LINK_ACTIVE_REQUESTS, LINK_KV_BLOCKS, LINK_KV_BLOCKS_FREE,
        LINK_KV_BLOCKS_LEFT,
    },
    in_seconds,
};
use crate::engines::ClockView;

/// What an engine looks like at one moment.
#[derive(Clone, Copy, Debug)]
pub struct EngineGauges<'a> {
    /// Its name.
    pub name: &'a str,
    /// Blocks in its pool.
    pub kv_blocks: u32,
    /// Blocks free, as it last said.
    pub kv_blocks_free: u32,
    /// Blocks left to promise.
    pub kv_blocks_left: u32,
    /// Its active requests.
    pub active: u32,
    /// Its clock.
    pub clock: ClockView,
}

/// What of an engine a gauge tells; `None` while it is not known.
type Told = fn(&EngineGauges<'_>) -> Option<f64>;

const GAUGES: [(Metric, Told); 6] = [
    (LINK_ACTIVE_REQUESTS, |engine| Some(engine.active.into())),
    (LINK_KV_BLOCKS, |engine| Some(engine.kv_blocks.into())),
    (LINK_KV_BLOCKS_FREE, |engine| Some(engine.kv_blocks_free.into())),
    (LINK_KV_BLOCKS_LEFT, |engine| Some(engine.kv_blocks_left.into())),
    (CLOCK_OFFSET, |engine| Some(in_seconds(engine.clock?.offset.offset_ns))),
    (CLOCK_BOUND, |engine| Some(in_seconds(engine.clock?.offset.bound_ns))),
];

/// The gauges of these engines in the text format of `/metrics`.
pub fn engine_gauges(engines: &[EngineGauges<'_>]) -> String {
    let page = |(metric, told): &(Metric, Told)| {
        // By name: two attachments under one are one series.
        let samples: BTreeMap<&str, f64> =
            engines.iter().filter_map(|engine| Some((engine.name, told(engine)?))).collect();
        owned_gauge(metric, samples)
    };
    GAUGES.iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(name: &str) -> EngineGauges<'_> {
        EngineGauges { name, kv_blocks: 4, kv_blocks_free: 2, kv_blocks_left: 1, active: 3, clock: None }
    }

    #[test]
    fn each_engine_that_is_attached_has_its_series_and_no_other() {
        let page = engine_gauges(&[engine("b"), engine("a"), engine("a")]);
        let series = "firstlight_link_kv_blocks_left{engine=\"a\"} 1\n\
                      firstlight_link_kv_blocks_left{engine=\"b\"} 1\n";
        assert!(page.contains(series), "{page}");
        assert_eq!(page.matches("{engine=\"a\"}").count(), 4, "no clock is known yet\n{page}");
        assert!(!engine_gauges(&[engine("b")]).contains("engine=\"a\""));
    }
}
