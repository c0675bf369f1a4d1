//! The settings, and what is true in them: all processes run on one machine, so each stamp can be turned back into
//! what the machine's own clock read.

use std::time::Duration;

use firstlight_proto::clock::{Drift, Stamp};
use firstlight_tests::{
    pair::{Pair, Plan},
    relay::{Way, Ways},
};

const AHEAD: Duration = Duration::from_secs(1000);
const ENGINE_PPM: &str = "200";
const CLIENT_PPM: &str = "-150";
/// Back takes much longer than there.
pub const TO_ENGINE: Ways = Ways { there: Way::ms(1, 1), back: Way::ms(6, 2) };
/// There takes longer than back.
pub const TO_SCHEDULER: Ways = Ways { there: Way::ms(5, 2), back: Way::ms(2, 1) };

/// One arrangement of clocks and ways.
#[derive(Clone)]
pub struct Setting {
    /// In words.
    pub name: &'static str,
    /// What to start.
    pub plan: Plan,
    /// What the client is told about its own clock.
    pub bench: &'static [&'static str],
    /// What lies between the scheduler and the engine.
    pub to_engine: Option<Ways>,
    /// What lies between the client and the scheduler.
    pub to_scheduler: Option<Ways>,
    engine: Reading,
    client: Reading,
}

/// How a process reads the machine's clock.
#[derive(Clone, Copy, Default)]
struct Reading {
    ahead: Duration,
    drift: Drift,
}

impl Reading {
    fn to_true(self, ns: i64) -> i64 {
        (self.drift.to_true(Stamp::from_ns(ns)) - self.ahead).ns()
    }
}

impl Setting {
    /// The machine's clock when the client's read `ns`.
    pub fn client_ns(&self, ns: i64) -> i64 {
        self.client.to_true(ns)
    }

    /// The machine's clock when the engine's read `ns`.
    pub fn engine_ns(&self, ns: i64) -> i64 {
        self.engine.to_true(ns)
    }

    fn new(name: &'static str) -> Self {
        let plan = Pair::sim();
        let (engine, client) = (Reading::default(), Reading::default());
        Self { name, plan, bench: &[], to_engine: None, to_scheduler: None, engine, client }
    }

    fn engine_ahead(mut self) -> Self {
        self.engine.ahead = AHEAD;
        Self { plan: self.plan.engines_ahead(AHEAD), ..self }
    }

    fn engine_drifts(mut self) -> Self {
        self.engine.drift = ENGINE_PPM.parse().expect("a drift");
        Self { plan: self.plan.engine(&["--clock-drift", ENGINE_PPM]), ..self }
    }

    fn client_drifts(mut self) -> Self {
        self.client.drift = CLIENT_PPM.parse().expect("a drift");
        Self { bench: &["--clock-drift", CLIENT_PPM], ..self }
    }

    fn engine_far(self) -> Self {
        Self { plan: self.plan.relayed_along(TO_ENGINE), to_engine: Some(TO_ENGINE), ..self }
    }

    fn scheduler_far(self) -> Self {
        Self { plan: self.plan.front_along(TO_SCHEDULER), to_scheduler: Some(TO_SCHEDULER), ..self }
    }
}

/// One clock for all, the engine's clock 1000 s ahead, its clock drifting, both with a relay in between …
pub fn all() -> Vec<Setting> {
    vec![
        Setting::new("one clock"),
        Setting::new("engine 1000 s ahead").engine_ahead(),
        Setting::new("engine ahead, relay 1 | 6 ms").engine_ahead().engine_far(),
        Setting::new("engine +200 ppm").engine_drifts(),
        Setting::new("engine +200 ppm, relay 1 | 6 ms").engine_drifts().engine_far(),
        Setting::new("client -150 ppm, relay 5 | 2 ms").client_drifts().scheduler_far(),
        everything(),
    ]
}

/// … and all of it at once.
pub fn everything() -> Setting {
    Setting::new("all of it").engine_ahead().engine_drifts().engine_far().client_drifts().scheduler_far()
}
