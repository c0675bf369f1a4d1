//! `bench-client explain`: why one request waited, and who held the limit.

use anyhow::Context as _;
use firstlight_proto::v1::{ExplainRequest, ExplainResponse, admin_client::AdminClient};

use crate::{flags::ExplainFlags, target::firstlight::connect};

/// Holders named per period.
const NAMED: usize = 3;

/// Runs the command.
///
/// # Errors
/// When the admin listener does not answer or does not know the request.
pub async fn explain(flags: ExplainFlags) -> anyhow::Result<()> {
    let channel = connect(&flags.server.admin).await?;
    let request = ExplainRequest { request_id: flags.request_id.clone() };
    let answer = AdminClient::new(channel).explain(request).await;
    let answer = answer.map_err(|status| anyhow::anyhow!("{}", status.message()));
    print!("{}", page(&answer.with_context(|| format!("explaining {}", flags.request_id))?.into_inner()));
    Ok(())
}

fn page(e: &ExplainResponse) -> String {
    let ms = |ns: i64| format!("{:.2}", ns as f64 / 1e6);
    let mut out = format!(
        "{} · {} · waited {} ms before admission, {} ms of it behind others in line\n",
        e.request_id,
        e.state,
        ms(e.queue_wait_ns),
        ms(e.behind_ns)
    );
    let start = e.periods.first().map_or(0, |p| p.from_ns);
    for period in &e.periods {
        let limit = match (period.cause().limit(), period.limit) {
            (Some(name), value) if value > 0 => format!("  {name} = {value}"),
            _ => String::new(),
        };
        let held: Vec<String> =
            period.holders.iter().take(NAMED).map(|h| format!("{} ({})", h.request_id, h.amount)).collect();
        let more = period.holders.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let held =
            if held.is_empty() { String::new() } else { format!("  held by {}{more}", held.join(", ")) };
        let (at, lasted) = (ms(period.from_ns - start), ms(period.to_ns - period.from_ns));
        out += &format!("{at:>10} ms  {:<13} {lasted:>10} ms{limit}{held}\n", period.cause().label());
    }
    out
}

#[cfg(test)]
mod tests {
    use firstlight_proto::v1::{Cause, Holder, WaitPeriod};

    use super::*;

    #[test]
    fn a_period_names_its_limit_and_who_held_it() {
        let holders = (0..5).map(|i| Holder { request_id: format!("r{i}"), amount: 1 }).collect();
        let period = WaitPeriod {
            cause: Cause::MaxActive.into(),
            from_ns: 1_000_000,
            to_ns: 3_500_000,
            limit: 64,
            holders,
        };
        let page = page(&ExplainResponse { periods: vec![period], ..Default::default() });
        assert!(page.contains("2.50 ms  max_active_requests = 64"), "{page}");
        assert!(page.contains("held by r0 (1), r1 (1), r2 (1) and 2 more"), "{page}");
    }
}
