//! What arrives: from a recording of a run, with the delays of each request, or from a trace.

use std::time::Duration;

use firstlight_proto::clock::Stamp;
use scheduler_svc::{
    admission::{Request, Tenant, Tokens},
    replay::{Arrival, Prompt},
};

use super::ms;
use crate::{
    load::dataset::{Dataset, Input, recorded::Line},
    report::costs::Delays,
    target,
};

/// Vocabulary of made-up prompts: they only have to be equal or different.
const VOCAB_SIZE: u32 = 50_000;

/// A request that will arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When the client meant to send it.
    pub submit_start: Stamp,
    /// When it is queued: stamp 3.
    pub queued: Stamp,
    /// Time from stamp 8 to stamp 9.
    pub deliver: Duration,
    /// Name of its class.
    pub class: String,
    /// What arrives.
    pub arrival: Arrival,
}

/// The requests of a recording, in the order they were queued. The parts of TTFT before the queue and after the
/// scheduler are the recorded ones, or their means where a stamp was lost; so is what the prefix cache saved.
/// Requests whose prompt length is not known are left out.
pub fn of_recording(lines: &[Line], delays: Delays, timeout: Option<Duration>) -> Vec<Planned> {
    let first = lines.first().map_or(0, |line| line.submit_start_ns);
    let planned = lines.iter().filter_map(|line| {
        let submit_start = Stamp::from_ns(line.submit_start_ns - first);
        let max_new = Tokens(line.max_new());
        let mut arrival = Arrival::new(Request::new(Tokens(line.prompt_tokens?), max_new));
        // One that failed half-way would have gone on.
        arrival.output = if line.outcome == "finished" { Tokens(line.output_tokens.max(1)) } else { max_new };
        arrival.prompt = Prompt::Unique { cached: Tokens(line.cached_tokens.unwrap_or(0)) };
        arrival.request.tenant = Tenant(line.tenant.unwrap_or(0));
        let before = ms(line.before_ms().unwrap_or(delays.before_ms));
        let deliver = ms(line.deliver_ms.unwrap_or(delays.deliver_ms));
        let timeout = timeout.or(line.timeout_ms.map(ms));
        let class = line.class.clone().unwrap_or_default();
        Some(Planned { class, ..plan(submit_start, before, deliver, arrival, timeout) })
    });
    in_order(planned.collect())
}

/// The requests of a trace at `times`, ns, on behalf of those it names; shared prefixes are found by the replay itself.
pub fn of_trace(
    trace: &Dataset,
    times: &[i64],
    delays: Delays,
    max_new: u32,
    timeout: Option<Duration>,
) -> Vec<Planned> {
    let planned = times.iter().enumerate().map(|(i, at)| {
        let row = &trace.rows()[i % trace.len()];
        let ask = trace.ask(0, i, VOCAB_SIZE, max_new);
        let (prompt, shares) = match (ask.prompt, &row.input) {
            (target::Prompt::Ids(ids), Input::Blocks { .. }) => (ids.len(), Some(ids)),
            (target::Prompt::Ids(ids), _) => (ids.len(), None),
            // About four characters to a token, as nothing better is known here.
            (target::Prompt::Text(text), _) => (text.len().div_ceil(4), None),
        };
        let request = Request::new(Tokens(prompt.max(1) as u32), Tokens(ask.max_new_tokens));
        let mut arrival = Arrival::new(request);
        if let Some(ids) = shares {
            arrival.prompt = Prompt::Ids(ids);
        }
        let target::Caller { tenant, class, timeout: waits } = ask.caller;
        arrival.request.tenant = tenant.map_or(Tenant(0), |tenant| Tenant::named(&tenant));
        let (before, deliver) = (ms(delays.before_ms), ms(delays.deliver_ms));
        let class = class.unwrap_or_default();
        Planned { class, ..plan(Stamp::from_ns(*at), before, deliver, arrival, timeout.or(waits)) }
    });
    in_order(planned.collect())
}

fn plan(
    submit_start: Stamp,
    before: Duration,
    deliver: Duration,
    mut arrival: Arrival,
    timeout: Option<Duration>,
) -> Planned {
    arrival.request.deadline = timeout.map(|timeout| submit_start + timeout);
    Planned { submit_start, queued: submit_start + before, deliver, class: String::new(), arrival }
}

fn in_order(mut planned: Vec<Planned>) -> Vec<Planned> {
    planned.sort_by_key(|planned| planned.queued);
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::dataset::{Fit, Row};

    fn line(at: i64, before_ms: Option<f64>) -> Line {
        Line {
            outcome: "finished".into(),
            submit_start_ns: at,
            prompt_tokens: Some(10),
            cached_tokens: Some(4),
            max_new_tokens: 8,
            output_tokens: 3,
            sent_ns: Some(at),
            client_lag_ms: before_ms,
            ingress_ms: Some(0.0),
            accept_ms: Some(0.0),
            ..Line::default()
        }
    }

    #[test]
    fn requests_are_queued_when_they_were_and_end_where_they_did() {
        let delays = Delays { before_ms: 2.0, deliver_ms: 0.5, ..Delays::default() };
        let lines = [line(5_000_000, Some(3.0)), line(6_000_000, None), line(7_000_000, Some(0.1))];
        let planned = of_recording(&lines, delays, None);
        let queued: Vec<_> = planned.iter().map(|p| p.queued.ns()).collect();
        assert_eq!(
            queued,
            [2_100_000, 3_000_000, 3_000_000],
            "in order of stamp 3, unknown ones by the mean"
        );
        let arrival = &planned[0].arrival;
        assert_eq!((arrival.request.max_new, arrival.output), (Tokens(8), Tokens(3)));
        assert_eq!(arrival.prompt, Prompt::Unique { cached: Tokens(4) });
        assert_eq!(planned[0].deliver, Duration::from_micros(500));
    }

    #[test]
    fn a_trace_is_replayed_on_behalf_of_the_callers_it_names() {
        let caller = |tenant: &str| target::Caller {
            tenant: Some(tenant.into()),
            class: Some("batch".into()),
            timeout: Some(Duration::from_millis(250)),
        };
        let row = |caller| Row { caller, ..Row::new(Input::Tokens(9)) };
        let rows = vec![row(caller("a")), row(caller("b")), row(caller("a")), row(target::Caller::default())];
        let fit = Fit { length_scale: 1.0, max_input: None, max_output: None, time_scale: 1.0 };
        let trace = Dataset::new(rows, fit).unwrap();
        let planned = |timeout| of_trace(&trace, &[0; 4], Delays::default(), 8, timeout);
        let [a, b, again, nobody] = planned(None).try_into().unwrap();
        assert_eq!((a.class.as_str(), nobody.class.as_str()), ("batch", ""));
        assert_eq!(a.arrival.request.tenant, again.arrival.request.tenant);
        assert_ne!(a.arrival.request.tenant, b.arrival.request.tenant);
        assert_eq!(nobody.arrival.request.tenant, Tenant(0));
        let deadlines = |all: &[Planned]| all.iter().map(|p| p.arrival.request.deadline).collect::<Vec<_>>();
        let at = |ms: i64| Some(Stamp::from_ns(ms * 1_000_000));
        assert_eq!(deadlines(&[a, b, again, nobody]), [at(250), at(250), at(250), None]);
        assert_eq!(deadlines(&planned(Some(Duration::from_millis(90)))), [at(90); 4]);
    }

    #[test]
    fn a_refused_request_is_left_out_and_a_failed_one_goes_on() {
        let refused = Line { prompt_tokens: None, outcome: "full".into(), ..line(0, None) };
        let failed = Line { outcome: "unavailable".into(), ..line(0, None) };
        let planned = of_recording(&[refused, failed], Delays::default(), None);
        assert_eq!(planned.len(), 1);
        assert_eq!(planned[0].arrival.output, Tokens(8));
    }
}
