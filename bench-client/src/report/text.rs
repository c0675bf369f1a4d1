//! The page a person reads: aligned, units once, nothing printed that was not measured.
//!
//! - [`lines`]: the seed's lines, under the seed's names
//! - [`breakdown`]: where TTFT goes
//! - [`audit`]: ledgers that agree, and those that do not
//! - [`footer`]: clocks, the client itself, a peer's own view

mod audit;
mod breakdown;
mod footer;
mod lines;

pub use breakdown::advice;

use super::results::Results;

const BAR: usize = 12;

/// The whole page, with what the figures mean when that is wanted.
pub fn page(r: &Results, with_definitions: bool) -> String {
    let mut out = String::new();
    header(&mut out, r);
    lines::write(&mut out, r);
    if r.ttft.n > 0 && r.spans.scheduler_missing < r.ttft.n {
        breakdown::write(&mut out, r);
        breakdown::remarks(&mut out, r);
    } else if r.ttft.n > 0 {
        footer::server(&mut out, r);
    }
    footer::clocks(&mut out, r);
    footer::client(&mut out, r);
    if let Some(audit) = &r.audit {
        audit::write(&mut out, audit);
    }
    for reason in &r.validity.reasons {
        put(&mut out, format!("INVALID: {reason}"));
    }
    if with_definitions {
        out.push('\n');
        for (name, meaning) in &r.definitions {
            put(&mut out, format!("{name}: {meaning}"));
        }
    }
    out
}

fn header(out: &mut String, r: &Results) {
    let run = &r.run;
    let threads = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
    let dtype =
        if matches!(run.dtype.as_str(), "" | "none") { String::new() } else { format!("{}, ", run.dtype) };
    let device = match run.engines {
        0 if run.api == "firstlight" => "no engine".to_owned(),
        0 => format!("{} at {}", run.api, run.target),
        1 => format!("{dtype}{}, {threads}", run.device),
        n => format!("{dtype}{}, {n} engines × {threads}", run.device),
    };
    put(out, format!("{} · {} ({device}) · {}", run.label, run.model, run.load));
    let kinds: Vec<String> =
        r.requests.failed_by_kind.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let prompt = r.requests.prompt_tokens.map_or("–".to_owned(), |n| n.to_string());
    put(
        out,
        format!(
            "completed {}   failed {}{kinds}   prompt tokens {prompt}   completion tokens {}   {}",
            r.requests.completed, r.requests.failed, r.requests.completion_tokens, r.validity.verdict
        ),
    );
    if !run.budget.is_empty() {
        let limits: Vec<String> = run.budget.iter().map(|(name, value)| format!("{name} {value}")).collect();
        put(out, format!("budget: {}", limits.join(", ")));
    }
    if run.interrupted {
        put(out, "interrupted: what follows was measured up to the interruption".to_owned());
    }
    out.push('\n');
}

fn put(out: &mut String, line: String) {
    out.push_str(line.trim_end());
    out.push('\n');
}

fn ms(value: Option<f64>) -> String {
    value.map_or(format!("{:>10}", "–"), |v| format!("{v:>10.2}"))
}

/// A bar of eighths of a character, padded to a fixed width.
fn bar(value: Option<f64>, largest: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if largest > 0.0 { (value.unwrap_or(0.0) / largest).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * (BAR * 8) as f64).round() as usize;
    let drawn = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
    format!("{drawn:<BAR$}")
}

#[cfg(test)]
mod tests;
