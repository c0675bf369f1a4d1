//! Below the breakdown: the clocks, what the client itself may have added, and a peer's own view.

use std::fmt::Write as _;

use super::{ms, put};
use crate::report::results::{ClockPoint, Results};

pub fn clocks(out: &mut String, r: &Results) {
    let Some(scheduler) = &r.clock.scheduler else { return };
    let point = |p: &ClockPoint| {
        if p.same_clock {
            "same clock (0 exactly)".to_owned()
        } else {
            format!("{:+.3} ± {:.3} ms", p.offset_ms, p.bound_ms)
        }
    };
    let mut line = format!("clocks: scheduler {}", point(scheduler));
    for (name, engine) in &r.clock.engines {
        let _ = write!(line, ", {name} {}", point(engine));
    }
    if let (Some(residual), Some(bound)) = (r.clock.loop_residual_ms, r.clock.loop_bound_ms) {
        let _ = write!(line, ", loop residual {residual:+.3} (bound {bound:.3}) ms");
    }
    put(out, line);
}

/// A server that tells no stamps: what it says of itself, beside what the client saw.
pub fn server(out: &mut String, r: &Results) {
    out.push('\n');
    let Some(view) = &r.server else {
        put(out, "this server tells no stamps: where its TTFT goes is not known".to_owned());
        return;
    };
    put(out, format!("{} says of itself, mean ms", view.server));
    let figures = [
        ("TTFT, client", r.ttft.mean_ms),
        ("TTFT, its own", view.ttft_ms),
        ("queue", view.queue_ms),
        ("prefill", view.prefill_ms),
        ("prefill per prompt token", view.prefill_ms_per_prompt_token),
        ("unexplained", view.unexplained_ms),
    ];
    for (name, value) in figures.into_iter().filter(|f| f.1.is_some()) {
        put(out, format!("  {name:<24}{}", ms(value)));
    }
}

/// What the client itself may have added.
pub fn client(out: &mut String, r: &Results) {
    let v = &r.validity;
    let lag = |x: Option<f64>| x.map(|ms| format!("{ms:.2} ms"));
    let said = [
        lag(v.send_lag_p99_ms).map(|x| format!("send lag p99 {x}")),
        lag(v.own_send_lag_p99_ms)
            .zip(lag(v.own_receive_lag_p99_ms))
            .map(|(send, receive)| format!("against a null server: send {send}, receive {receive}")),
        v.cpu_cores.map(|cores| format!("{cores:.2} cores used")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if !said.is_empty() {
        put(out, format!("client: {}", said.join("; ")));
    }
}
