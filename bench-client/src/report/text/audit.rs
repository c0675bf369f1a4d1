//! The audit's balances: each pair of ledgers, their figures, and whether they agree.

use super::put;
use crate::audit::Audit;

pub fn write(out: &mut String, audit: &Audit) {
    let wrong = audit.disagreements().count();
    out.push('\n');
    put(out, format!("audit: {} of {} balances agree", audit.checks.len() - wrong, audit.checks.len()));
    for check in &audit.checks {
        let ((left, a), (right, b)) = (&check.left, &check.right);
        let pair = format!("{left} ⇄ {right}");
        let verdict = if check.agrees() { "" } else { "  DISAGREE" };
        let apart = format!("(± {})", figure(check.tolerance));
        put(
            out,
            format!("  {:<36}{pair:<52}{:>12} {:>12} {apart}{verdict}", check.what, figure(*a), figure(*b)),
        );
    }
}

/// Counts as whole numbers, times with their fraction.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}
