//! Recorded arrivals under another budget, policy or number of engines: replayed in virtual time through the
//! production admission core and the engines' own step planner, at costs fitted from forwards that really ran.
//! Pure, except for [`verify`](mod@verify).
//!
//! - [`arrivals`]: what arrives, from a recording or a trace
//! - [`model`]: costs from recorded forwards, and how sure they are
//! - [`noise`]: the same costs with the noise that was measured
//! - [`reach`]: the largest forwards that costs were fitted to, and what lies beyond them
//! - [`replay`]: one replay, and what it adds up to
//! - [`predict`](mod@predict): many replays with noise: figures with intervals
//! - [`figures`]: named figures, measured or predicted
//! - [`budgets`]: budgets by name and value
//! - [`search`](mod@search): the best budget for an objective
//! - [`verify`](mod@verify): the same budgets live
//! - [`judged`]: predicted beside measured, and whether it is near enough
//! - [`page`]: the page a person reads

pub mod arrivals;
pub mod budgets;
pub mod figures;
pub mod judged;
pub mod model;
pub mod noise;
pub mod page;
pub mod predict;
pub mod reach;
pub mod replay;
pub mod search;
pub mod verify;

use std::time::Duration;

/// Recorded milliseconds; a difference of two clocks may come out below 0, and then nothing was lost.
fn ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::ZERO)
}
