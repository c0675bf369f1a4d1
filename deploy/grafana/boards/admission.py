"""Admission: what the budget is, how much of it is used, and whom it keeps out."""

from boards.panels import dashboard_of, lines, number, row, stack
from boards.ttft import rate


def limit(name):
    return f'max(firstlight_budget_limit{{limit="{name}"}})'


def board():
    return (
        dashboard_of(
            "firstlight-admission",
            "Firstlight / Admission",
            "The pending queue and the budget that lets requests out of it.",
        )
        .with_row(row("Now"))
        .with_panel(number("Pending", "Requests in the queue.", "short", "sum(firstlight_pending_requests)"))
        .with_panel(
            number("Active", "Requests admitted and not finished.", "short", "sum(firstlight_active_requests)")
        )
        .with_panel(
            number(
                "Active budget used",
                "Active requests as a share of max_active_requests. At 100 % every other request waits for max_active.",
                "percentunit",
                f"sum(firstlight_active_requests) / {limit('max_active_requests')}",
                thresholds=((None, "green"), (0.9, "orange"), (1.0, "red")),
            )
        )
        .with_panel(
            number(
                "Queue used",
                "Pending requests as a share of max_pending. At 100 % new requests are refused.",
                "percentunit",
                f"sum(firstlight_pending_requests) / {limit('max_pending')}",
                thresholds=((None, "green"), (0.5, "orange"), (0.9, "red")),
            )
        )
        .with_panel(
            number(
                "Budget version",
                "Grows by one with every change of the budget in force.",
                "none",
                "max(firstlight_budget_version)",
            )
        )
        .with_panel(
            number(
                "Leased",
                "1 while someone's lease overrides the base budget, such as a bench run.",
                "none",
                "max(firstlight_budget_leased)",
                thresholds=((None, "green"), (1, "orange")),
            )
        )
        .with_row(row("Waiting"))
        .with_panel(
            stack(
                "Requests that wait, by cause",
                "Blocked seconds per second: how many requests each limit keeps waiting, while they wait.",
                "short",
                {"{{cause}}": f"sum by (cause) ({rate('firstlight_queue_blocked_seconds_total')})"},
            )
        )
        .with_panel(
            lines(
                "Share of waiting by cause",
                "Which limit to change first. docs/runbook.md says what each needs.",
                "percentunit",
                {
                    "{{cause}}": f"""sum by (cause) ({rate("firstlight_queue_blocked_seconds_total")})
                        / scalar(sum({rate("firstlight_queue_blocked_seconds_total")}) > 0)"""
                },
            )
        )
        .with_panel(
            lines(
                "Pending and active",
                "The queue, what runs, and the limit of what may run.",
                "short",
                {
                    "pending": "sum(firstlight_pending_requests)",
                    "active": "sum(firstlight_active_requests)",
                    "max_active_requests": limit("max_active_requests"),
                },
            )
        )
        .with_panel(
            lines(
                "KV blocks left to promise",
                "Per engine: what admission may still give away, and what the engine says is free. At 0 requests "
                "wait for kv_blocks.",
                "short",
                {
                    "{{engine}} left": "max by (engine) (firstlight_link_kv_blocks_left)",
                    "{{engine}} free": "max by (engine) (firstlight_link_kv_blocks_free)",
                },
            )
        )
        .with_row(row("In and out"))
        .with_panel(
            lines(
                "Requests",
                "Received at the door, queued, ended.",
                "reqps",
                {
                    "received": f"sum({rate('firstlight_requests_received_total')})",
                    "queued": f"sum({rate('firstlight_requests_queued_total')})",
                    "ended": f"sum({rate('firstlight_requests_finished_total')})",
                },
            )
        )
        .with_panel(
            lines(
                "Refusals by kind",
                "Refused before they were queued. full: more came than the queue holds. invalid and never_fits: "
                "the client's to change.",
                "reqps",
                {"{{kind}}": f"sum by (kind) ({rate('firstlight_refusals_total')})"},
            )
        )
        .with_panel(
            lines(
                "Ends by outcome",
                "How queued requests ended.",
                "reqps",
                {"{{outcome}}": f"sum by (outcome) ({rate('firstlight_requests_finished_total')})"},
            )
        )
        .with_panel(
            lines(
                "Cancels by whom",
                "Queued requests taken back: the client hung up, its deadline passed, it did not read, we stop.",
                "reqps",
                {"{{by}}": f"sum by (by) ({rate('firstlight_cancels_total')})"},
            )
        )
        .with_row(row("Tenants"))
        .with_panel(
            lines(
                "Tokens by tenant",
                "What each tenant named with --tenants is served, and all others together. Policy fair evens these out "
                "while they compete.",
                "short",
                {"{{tenant}}": f"sum by (tenant) ({rate('firstlight_tenant_output_tokens_total')})"},
            )
        )
        .with_panel(
            lines(
                "Mean queue wait by tenant",
                "Who waits. One tenant's flood shows here as the others' wait, unless policy fair keeps it from them.",
                "s",
                {
                    "{{tenant}}": f"""sum by (tenant) ({rate("firstlight_tenant_queue_wait_seconds_sum")})
                        / sum by (tenant) ({rate("firstlight_tenant_queue_wait_seconds_count")})"""
                },
            )
        )
        .with_panel(
            lines(
                "Requests by tenant",
                "Requests queued.",
                "reqps",
                {"{{tenant}}": f"sum by (tenant) ({rate('firstlight_tenant_requests_total')})"},
            )
        )
        .with_row(row("Rounds and limits"))
        .with_panel(
            lines(
                "Requests per round",
                "Mean size of a round beside its limit. Rounds at the limit make requests wait for batch_size.",
                "short",
                {
                    "mean": f"""sum({rate("firstlight_round_requests_sum")})
                        / sum({rate("firstlight_round_requests_count")})""",
                    "prefill_max_batch_size": limit("prefill_max_batch_size"),
                },
            )
        )
        .with_panel(
            lines("Rounds", "Rounds sent to engines.", "ops", {"rounds": f"sum({rate('firstlight_rounds_total')})"})
        )
        .with_panel(
            lines(
                "Budget in force",
                "Every limit over time: a step here, then a step in the breakdown.",
                "short",
                {"{{limit}}": "max by (limit) (firstlight_budget_limit)"},
                width=24,
            )
        )
    )
