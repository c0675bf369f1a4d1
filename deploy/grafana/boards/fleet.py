"""Fleet: are all parts there, how is load spread, and what do clients get?"""

from boards.panels import dashboard_of, lines, number, quantiles, row
from boards.ttft import TTFT, rate


def buckets(metric):
    return f"sum by (le) ({rate(f'{metric}_bucket')})"


def board():
    return (
        dashboard_of("firstlight-fleet", "Firstlight / Fleet", "All schedulers and engines at a glance.")
        .with_row(row("Now"))
        .with_panel(
            number(
                "Services up",
                "Schedulers and engines that answer scrapes.",
                "short",
                'sum(up{job=~"firstlight-(scheduler|engine)"})',
            )
        )
        .with_panel(
            number(
                "Engines attached",
                "Engines that a scheduler has a stream to.",
                "short",
                "sum(firstlight_engines_attached)",
                thresholds=((None, "red"), (1, "green")),
            )
        )
        .with_panel(
            number(
                "Stalled",
                "1 while requests could be admitted and are not. Overload alone never shows here.",
                "none",
                "max(firstlight_stalled)",
                thresholds=((None, "green"), (1, "red")),
            )
        )
        .with_panel(
            number(
                "Output",
                "Tokens received from engines, per second.",
                "short",
                f"sum({rate('firstlight_output_tokens_total')})",
            )
        )
        .with_panel(
            number(
                "TTFT p99",
                "All requests, last minutes.",
                "s",
                f"histogram_quantile(0.99, {buckets(TTFT)})",
            )
        )
        .with_panel(
            number(
                "KV in use",
                "Share of all engines' KV blocks in use.",
                "percentunit",
                "max(firstlight_kv_utilization_ratio)",
                thresholds=((None, "green"), (0.9, "orange"), (0.97, "red")),
            )
        )
        .with_row(row("What clients get"))
        .with_panel(lines("TTFT", "Request decoded to first token.", "s", quantiles(buckets(TTFT)), width=8))
        .with_panel(
            lines(
                "ITL",
                "Time between neighbouring tokens of a request.",
                "s",
                quantiles(buckets("firstlight_itl_seconds")),
                width=8,
            )
        )
        .with_panel(
            lines(
                "Latency",
                "Whole requests, of those that finished.",
                "s",
                quantiles(buckets("firstlight_latency_seconds")),
                width=8,
            )
        )
        .with_row(row("How load is spread"))
        .with_panel(
            lines(
                "Active requests by engine",
                "Admitted and not finished.",
                "short",
                {"{{engine}}": "sum by (engine) (firstlight_link_active_requests)"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "KV blocks free by engine",
                "Share of its pool, as the engine says.",
                "percentunit",
                {
                    "{{engine}}": """sum by (engine) (firstlight_link_kv_blocks_free)
                        / sum by (engine) (firstlight_link_kv_blocks)"""
                },
                width=8,
            )
        )
        .with_panel(
            lines(
                "Generated tokens by engine",
                "Tokens per second.",
                "short",
                {"{{instance}}": f"sum by (instance) ({rate('firstlight_engine_generated_tokens_total')})"},
                width=8,
            )
        )
        .with_row(row("What goes wrong"))
        .with_panel(
            lines(
                "Engines lost",
                "Attachments per second that ended, by engine; their requests went on elsewhere.",
                "cps",
                {"{{engine}}": f"sum by (engine) ({rate('firstlight_link_losses_total')})"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Attempts lost",
                "Admissions per second that died with their engine, or were preempted, and were queued again.",
                "cps",
                {
                    "engine_lost": f"sum({rate('firstlight_attempts_lost_total')})",
                    "preempted": f"sum({rate('firstlight_preemptions_total')})",
                },
                width=8,
            )
        )
        .with_panel(
            lines(
                "Refusals",
                "Requests per second refused before they were queued, by kind.",
                "reqps",
                {"{{kind}}": f"sum by (kind) ({rate('firstlight_refusals_total')})"},
                width=8,
            )
        )
        .with_row(row("Clocks and spans"))
        .with_panel(
            lines(
                "Clock offset",
                "Each engine's clock less the scheduler's. Large is fine, as long as it is known.",
                "s",
                {"{{engine}}": "max by (engine) (abs(firstlight_clock_offset_seconds))"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Clock bound",
                "The true offset lies within ± this.",
                "s",
                {"{{engine}}": "max by (engine) (firstlight_clock_bound_seconds)"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Spans dropped",
                "Spans per second that slow watchers lost.",
                "cps",
                {
                    "scheduler": f"sum({rate('firstlight_spans_dropped_total')})",
                    "engine": f"sum({rate('firstlight_engine_spans_dropped_total')})",
                },
                width=8,
            )
        )
    )
