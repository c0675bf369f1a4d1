//! Metrics of the scheduler.
//!
//! - [`declared`]: every metric, with its unit, help, labels and buckets
//! - [`engines`]: gauges of each engine that is attached
//! - [`events`]: what is counted as it happens
//! - [`gauges`]: what is set when a scrape asks
//! - [`shadow`]: what a shadow predicts
//! - [`tenants`]: what is counted per tenant
//! - [`traces`]: what became of exported traces

pub mod declared;
pub mod engines;
pub mod events;
pub mod gauges;
pub mod shadow;
pub mod tenants;
pub mod traces;

pub use declared::{ALL, BLOCKED, ITL};
pub use engines::{EngineGauges, engine_gauges};
pub use events::{CancelledBy, FINISHES, Metrics, SEGMENTS};
pub use gauges::{count_engine, set_budget, set_gauges};
pub use shadow::ShadowMetrics;
pub use tenants::Tenants;
pub use traces::{TraceDrop, TraceMetrics};

/// Nanoseconds in seconds.
pub fn in_seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use firstlight_proto::{
        clock::Stamp,
        offset::{Offset, View},
        serve::{metrics::Kind, recorder::recorder},
    };
    use metrics::Unit;

    use super::*;
    use crate::admission::Budget;

    #[test]
    fn names_are_unique_and_carry_their_unit() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.name.starts_with("firstlight_"), "{}", metric.name);
            let counts = matches!(metric.kind, Kind::Counter | Kind::SecondsCounter);
            assert_eq!(metric.name.ends_with("_total"), counts, "{}", metric.name);
            assert_eq!(metric.name.contains("_seconds"), metric.unit == Unit::Seconds, "{}", metric.name);
        }
    }

    #[test]
    fn all_that_is_recorded_is_declared() {
        let declared =
            |name: &str| ALL.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("{name}")).kind;
        let (recorder, page) = recorder(ALL);
        let clock = View { offset: Offset::default(), same_clock: true, at: Stamp::from_ns(1) };
        let engine = EngineGauges {
            name: "e",
            kv_blocks: 4,
            kv_blocks_free: 2,
            kv_blocks_left: 1,
            active: 3,
            clock: Some(clock),
        };
        metrics::with_local_recorder(&recorder, || {
            Tenants::new(&["t".to_owned()]);
            Metrics::new().first_token(5, false, Some(&SEGMENTS.map(|segment| (segment, -1))));
            let now = Stamp::from_ns(1);
            let core = crate::admission::Admission::new(Budget::default(), now).unwrap();
            set_gauges(&core.gauges(now), &[engine]);
            set_budget(&Budget::default(), 1, false, 2048);
            count_engine("firstlight_link_attachments_total", "e", 1);
            count_engine("firstlight_link_losses_total", "e", 1);
            ShadowMetrics::new("s");
        });
        let page = page.render() + &engine_gauges(&[engine]);
        let types: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        for line in &types {
            let (name, kind) = line.split_once(' ').unwrap();
            assert_eq!(kind, declared(name).prometheus_type(), "{name}");
        }
        assert_eq!(
            types.len() + 2,
            ALL.len(),
            "all but BLOCKED and ITL, which are appended, are on the page"
        );
        assert!(page.contains("firstlight_kv_utilization_ratio 0.5"), "{page}");
    }
}
