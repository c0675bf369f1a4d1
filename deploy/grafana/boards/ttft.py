"""TTFT breakdown: is the objective met, where does the time go, and what do the slow ones wait for?"""

from boards.panels import dashboard_of, heat, lines, number, quantiles, row, stack

MISS = 'firstlight_ttft_seconds_count{ttft_band="slo_miss"}'
TTFT = "firstlight_ttft_seconds"
SEGMENT = "firstlight_ttft_segment_seconds"
# As in deploy/prometheus/rules: the failures that are not the client's own.
FAILED = 'firstlight_ttft_failures_total{kind=~"deadline|unavailable|bug"}'
REFUSED = 'firstlight_refusals_total{kind=~"full|deadline|unavailable|bug"}'


def rate(metric):
    return f"rate({metric}[$__rate_interval])"


WITHOUT = f"(sum({rate(FAILED)}) or vector(0)) + (sum({rate(REFUSED)}) or vector(0))"


def mean(histogram, label, selector=""):
    """The mean by a label's values; no line, rather than 0/0, where nothing happened."""
    return f"""sum by ({label}) ({rate(f"{histogram}_sum{selector}")})
        / (sum by ({label}) ({rate(f"{histogram}_count{selector}")}) > 0)"""


def buckets(segment):
    return f"""sum by (le) ({rate(f'{SEGMENT}_bucket{{segment="{segment}"}}')})"""


def board():
    return (
        dashboard_of(
            "firstlight-ttft",
            "Firstlight / TTFT breakdown",
            "Every millisecond before the first token, as the scheduler saw it (request decoded to first token decoded).",
        )
        .with_row(row("Objective"))
        .with_panel(
            number(
                "Attainment",
                "Share of requests whose first token came within the scheduler's --slo-ttft. One that was refused, or "
                "failed before its first token, missed it.",
                "percentunit",
                f"1 - (sum({rate(MISS)}) + {WITHOUT}) / (sum({rate(f'{TTFT}_count')}) + {WITHOUT})",
                thresholds=((None, "red"), (0.95, "orange"), (0.99, "green")),
            )
        )
        .with_panel(
            number(
                "First tokens",
                "First tokens per second; each is one request whose TTFT is known.",
                "reqps",
                f"sum({rate(f'{TTFT}_count')})",
            )
        )
        .with_panel(
            number(
                "Mean TTFT",
                "The mean, which the segments below add up to. Percentiles do not add.",
                "s",
                f"sum({rate(f'{TTFT}_sum')}) / sum({rate(f'{TTFT}_count')})",
            )
        )
        .with_panel(
            lines(
                "TTFT",
                "Quantiles, interpolated between buckets. Lines, because quantiles of parts do not add up.",
                "s",
                quantiles(f"sum by (le) ({rate(f'{TTFT}_bucket')})", (0.5, 0.9, 0.95, 0.99)),
            )
        )
        .with_row(row("Where it goes"))
        .with_panel(
            stack(
                "Mean TTFT by segment",
                "Mean seconds in each segment; the height is the mean TTFT. queue_wait: the budget. engine_wait: "
                "the step loop. prefill: the model. dispatch and return: the network.",
                "s",
                {"{{segment}}": mean(SEGMENT, "segment")},
            )
        )
        .with_panel(
            stack(
                "The same for those over the objective",
                "Only requests whose TTFT missed --slo-ttft: what made the slow ones slow. Empty while none misses.",
                "s",
                {"{{segment}}": mean(SEGMENT, "segment", '{ttft_band="slo_miss"}')},
            )
        )
        .with_panel(
            stack(
                "Requests that wait, by cause",
                "Blocked seconds per second: how many requests each limit keeps waiting, while they wait.",
                "short",
                {"{{cause}}": f"sum by (cause) ({rate('firstlight_queue_blocked_seconds_total')})"},
            )
        )
        .with_panel(
            stack(
                "Mean engine_wait by cause",
                "After admission, in the engine: another forward was running, or decode_first ran a decode first.",
                "s",
                {"{{cause}}": mean("firstlight_engine_wait_seconds", "cause")},
            )
        )
        .with_panel(
            stack(
                "Mean prefill by part",
                "own: forwards that hold the request's rows. between: other work between its chunks.",
                "s",
                {"{{part}}": mean("firstlight_engine_prefill_seconds", "part")},
            )
        )
        .with_panel(
            lines(
                "Queue wait and prefill",
                "Quantiles of the two segments that are most often to blame.",
                "s",
                {
                    "queue_wait p50": f"histogram_quantile(0.5, {buckets('queue_wait')})",
                    "queue_wait p99": f"histogram_quantile(0.99, {buckets('queue_wait')})",
                    "prefill p50": f"histogram_quantile(0.5, {buckets('prefill')})",
                    "prefill p99": f"histogram_quantile(0.99, {buckets('prefill')})",
                },
            )
        )
        .with_row(row("Distributions"))
        .with_panel(
            heat("Queue wait", "How many requests per second spent how long in the queue.", buckets("queue_wait"))
        )
        .with_panel(
            heat("Prefill", "How many requests per second spent how long in prefill.", buckets("prefill"))
        )
        .with_row(row("Can it be believed?"))
        .with_panel(
            lines(
                "Residual",
                "Share of TTFT that no segment accounts for. A line at 0: the breakdown sums to what was measured.",
                "percentunit",
                {
                    "residual": f"""1 - sum({rate(f"{SEGMENT}_sum")}) / sum({rate(f"{TTFT}_sum")})""",
                    "first tokens without breakdown": f"""sum({rate("firstlight_ttft_unsplit_total")})
                        / sum({rate(f"{TTFT}_count")})""",
                },
                width=8,
            )
        )
        .with_panel(
            lines(
                "Clock bound",
                "The true offset between an engine's clock and the scheduler's lies within ± this. 0: they share "
                "one clock. dispatch and return shorter than it cannot be told apart.",
                "s",
                {"{{engine}}": "max by (engine) (firstlight_clock_bound_seconds)"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Negative segments",
                "Segments that came out below zero, per second. Counted, never hidden: clocks disagree by more than "
                "their bound.",
                "cps",
                {"{{segment}}": f"sum by (segment) ({rate('firstlight_negative_segments_total')})"},
                width=8,
            )
        )
    )
