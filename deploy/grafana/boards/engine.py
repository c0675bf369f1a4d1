"""Engine: what its forwards cost, how full they are, and what its KV pool holds."""

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard

from boards.panels import DATASOURCE, dashboard_of, heat, lines, number, quantiles, row, stack

ENGINE = '{instance=~"$instance"}'


def rate(metric, more=""):
    return f'rate({metric}{{instance=~"$instance"{more}}}[$__rate_interval])'


def instances():
    return (
        build.QueryVariable("instance")
        .label("Engine")
        .datasource(DATASOURCE)
        .query("label_values(firstlight_engine_steps_total, instance)")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def board():
    forward = "firstlight_engine_forward_seconds"
    padding = rate("firstlight_engine_padding_rows_total")
    decode_rows = rate("firstlight_engine_forward_rows_sum", ',kind="decode"')
    hits, computed = rate("firstlight_engine_prefix_hit_tokens_total"), rate("firstlight_engine_prefill_tokens_total")
    return (
        dashboard_of("firstlight-engine", "Firstlight / Engine", "The step loop, its forwards and its KV pool.")
        .with_variable(instances())
        .with_row(row("Now"))
        .with_panel(
            number(
                "Generated tokens",
                "Tokens per second, all engines chosen.",
                "short",
                f"sum({rate('firstlight_engine_generated_tokens_total')})",
            )
        )
        .with_panel(
            number("Prompt tokens", "Prompt tokens computed per second.", "short", f"sum({computed})")
        )
        .with_panel(
            number(
                "Time in forwards",
                "Share of time spent in forwards, mean over engines. The rest is the loop's own, or idle.",
                "percentunit",
                f"avg(sum by (instance) ({rate(f'{forward}_sum')}))",
            )
        )
        .with_panel(
            number(
                "KV blocks in use",
                "Share of the pool that running sequences hold.",
                "percentunit",
                f"1 - sum(firstlight_engine_kv_blocks_free{ENGINE}) / sum(firstlight_engine_kv_blocks{ENGINE})",
                thresholds=((None, "green"), (0.9, "orange"), (0.97, "red")),
            )
        )
        .with_panel(
            number(
                "Prefix hits",
                "Share of prompt tokens found in the prefix cache and not computed.",
                "percentunit",
                f"sum({hits}) / (sum({hits}) + sum({computed}))",
            )
        )
        .with_panel(
            number(
                "Preemptions",
                "Sequences per second that gave way because the pool ran dry.",
                "cps",
                f"sum({rate('firstlight_engine_preemptions_total')})",
            )
        )
        .with_row(row("Forwards"))
        .with_panel(
            lines(
                "Mean forward time by kind and bucket",
                "bucket: rows rounded up to a power of two. A decode forward's time is what every active request "
                "waits per token.",
                "s",
                {
                    "{{kind}} ≤ {{bucket}}": f"""sum by (kind, bucket) ({rate(f"{forward}_sum")})
                        / (sum by (kind, bucket) ({rate(f"{forward}_count")}) > 0)"""
                },
            )
        )
        .with_panel(
            lines(
                "Forward time",
                "Quantiles by kind.",
                "s",
                {
                    f"{kind} {name}": query
                    for kind in ("prefill", "decode")
                    for name, query in quantiles(
                        f"""sum by (le) ({rate(f"{forward}_bucket", f',kind="{kind}"')})""", (0.5, 0.99)
                    ).items()
                },
            )
        )
        .with_panel(
            stack(
                "Time by kind of forward",
                "Seconds per second: how an engine's time divides between prefill and decode.",
                "percentunit",
                {"{{kind}}": f"sum by (kind) ({rate(f'{forward}_sum')}) / scalar(count(firstlight_engine_kv_blocks{ENGINE}))"},
            )
        )
        .with_panel(
            heat(
                "Decode forwards",
                "How many decode forwards per second took how long.",
                f"""sum by (le) ({rate(f"{forward}_bucket", ',kind="decode"')})""",
            )
        )
        .with_row(row("Batches"))
        .with_panel(
            lines(
                "Rows per forward",
                "Mean rows by kind: the fuller, the cheaper each token.",
                "short",
                {
                    "{{kind}}": f"""sum by (kind) ({rate("firstlight_engine_forward_rows_sum")})
                        / (sum by (kind) ({rate("firstlight_engine_forward_rows_count")}) > 0)"""
                },
                width=8,
            )
        )
        .with_panel(
            lines(
                "Padding",
                "Share of executed decode rows that only filled a bucket.",
                "percentunit",
                {"padding": f"sum({padding}) / (sum({padding}) + sum({decode_rows}))"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Sequences",
                "Admitted and not begun (inbox), in their prompt, active in all.",
                "short",
                {
                    "inbox": f"sum(firstlight_engine_inbox_sequences{ENGINE})",
                    "prefilling": f"sum(firstlight_engine_prefilling_sequences{ENGINE})",
                    "active": f"sum(firstlight_engine_active_sequences{ENGINE})",
                },
                width=8,
            )
        )
        .with_row(row("KV pool"))
        .with_panel(
            stack(
                "KV blocks",
                "used: held by sequences. free: unused, or cached and evictable.",
                "short",
                {
                    "used": f"sum(firstlight_engine_kv_blocks{ENGINE}) - sum(firstlight_engine_kv_blocks_free{ENGINE})",
                    "free": f"sum(firstlight_engine_kv_blocks_free{ENGINE})",
                },
                width=8,
            )
        )
        .with_panel(
            lines(
                "Prefix cache",
                "Blocks that the prefix cache knows, in use or evictable.",
                "short",
                {"{{instance}}": f"sum by (instance) (firstlight_engine_kv_blocks_cached{ENGINE})"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Prompt tokens",
                "Computed, and found in the prefix cache.",
                "short",
                {"computed": f"sum({computed})", "found": f"sum({hits})"},
                width=8,
            )
        )
        .with_row(row("Sequences that end"))
        .with_panel(
            lines(
                "Ends by reason",
                "Sequences per second that ended after they were admitted.",
                "cps",
                {"{{reason}}": f"sum by (reason) ({rate('firstlight_engine_finished_total')})"},
                width=8,
            )
        )
        .with_panel(
            lines(
                "Preempted, cancelled",
                "Sequences per second that gave way to others, and that their scheduler took back.",
                "cps",
                {
                    "preempted": f"sum({rate('firstlight_engine_preemptions_total')})",
                    "cancelled": f"sum({rate('firstlight_engine_cancels_total')})",
                },
                width=8,
            )
        )
        .with_panel(
            lines(
                "Steps",
                "Passes of the step loop that ran a forward.",
                "ops",
                {"{{instance}}": f"sum by (instance) ({rate('firstlight_engine_steps_total')})"},
                width=8,
            )
        )
    )
