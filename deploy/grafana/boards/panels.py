"""The few kinds of panel that our dashboards are made of. Each needs a title, a unit and a description."""

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap as build_heatmap
from grafana_foundation_sdk.builders import prometheus as build_prometheus
from grafana_foundation_sdk.builders import stat as build_stat
from grafana_foundation_sdk.builders import timeseries as build_timeseries
from grafana_foundation_sdk.models import common, heatmap, prometheus
from grafana_foundation_sdk.models import dashboard

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Okabe and Ito's colours, told apart by the colour-blind too; one word, one colour, on every dashboard.
COLOURS = {
    "accept": "#999999",
    "queue_wait": "#D55E00",
    "lost": "#000000",
    "dispatch": "#56B4E9",
    "engine_wait": "#E69F00",
    "prefill": "#009E73",
    "return": "#CC79A7",
    "max_active": "#D55E00",
    "kv_blocks": "#0072B2",
    "token_budget": "#F0E442",
    "batch_size": "#E69F00",
    "fair_share": "#CC79A7",
    "engine_busy": "#009E73",
    "no_engine": "#000000",
    "round_trip": "#56B4E9",
    "decode_first": "#999999",
    "own": "#009E73",
    "between": "#E69F00",
}


def dashboard_of(uid, title, description):
    """An empty dashboard: the data source to choose, the last half hour, one shared crosshair."""
    return (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["firstlight"])
        .time("now-30m", "now")
        .refresh("10s")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .link(
            build.DashboardLink("Firstlight")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags(["firstlight"])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
    )


def row(title):
    return build.Row(title)


def lines(title, description, unit, queries, width=12):
    """Lines that are compared, not added: never stacked."""
    return _series(title, description, unit, queries, width).fill_opacity(0).axis_soft_min(0)


def stack(title, description, unit, queries, width=12):
    """Parts of one whole: stacked, so that their height is the sum."""
    stacking = build_common.StackingConfig().mode(common.StackingMode.NORMAL)
    return _series(title, description, unit, queries, width).min(0).fill_opacity(70).line_width(0).stacking(stacking)


def number(title, description, unit, query, width=4, thresholds=None):
    """One figure, the latest."""
    panel = (
        build_stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .with_target(_target("A", query, title))
        .span(width)
        .height(4)
        .graph_mode(common.BigValueGraphMode.AREA)
        .reduce_options(build_common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    return panel.thresholds(_steps(thresholds)) if thresholds else panel


def heat(title, description, bucket_rate, width=12):
    """How a time is distributed, over time; `bucket_rate` is a rate of buckets by `le`, in seconds."""
    return (
        build_heatmap.Panel()
        .title(title)
        .description(description)
        .unit("s")
        .datasource(DATASOURCE)
        .with_target(_target("A", bucket_rate, "{{le}}").format(prometheus.PromQueryFormat.HEATMAP))
        .span(width)
        .height(9)
        .calculate(False)
        .y_axis(build_heatmap.YAxisConfig().unit("s"))
        .color(
            build_heatmap.HeatmapColorOptions()
            .mode(heatmap.HeatmapColorMode.SCHEME)
            .scheme("Viridis")
            .steps(64)
        )
    )


def quantiles(bucket_rate, quantiles=(0.5, 0.95, 0.99)):
    """Queries for lines of quantiles of one histogram."""
    return {f"p{100 * q:g}": f"histogram_quantile({q}, {bucket_rate})" for q in quantiles}


def _series(title, description, unit, queries, width):
    panel = (
        build_timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(width)
        .height(9)
        .legend(
            build_common.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.RIGHT)
            .calcs(["mean", "max"])
            .show_legend(True)
        )
        .tooltip(
            build_common.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
    )
    for ref, (legend, query) in zip("ABCDEFGH", queries.items(), strict=False):
        panel = panel.with_target(_target(ref, query, legend))
    for name, colour in COLOURS.items():
        if _may_show(name, queries):
            fixed = {"mode": "fixed", "fixedColor": colour}
            panel = panel.override_by_name(name, [dashboard.DynamicConfigValue(id_val="color", value=fixed)])
    return panel


def _may_show(name, queries):
    """Whether a series of this name can appear: by its own legend, or by a label's values."""
    segments = ("accept", "queue_wait", "lost", "dispatch", "engine_wait", "prefill", "return")
    label = "segment" if name in segments else "part" if name in ("own", "between") else "cause"
    return name in queries or "{{%s}}" % label in queries


def _target(ref, query, legend):
    return (
        build_prometheus.Dataquery()
        .ref_id(ref)
        .expr(" ".join(query.split()))
        .legend_format(legend)
        .range()
        .datasource(DATASOURCE)
    )


def _steps(thresholds):
    steps = [dashboard.Threshold(value=value, color=colour) for value, colour in thresholds]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
