//! deploy/prometheus and deploy/grafana: rules and dashboards, and that their metrics are declared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{at, deploy, items, program, repository, succeed, text, tool, yaml};

const DASHBOARDS: [&str; 4] =
    ["firstlight-ttft", "firstlight-admission", "firstlight-engine", "firstlight-fleet"];

const RULE_TESTS: [&str; 4] = ["slo", "slo_days", "causes", "measurement"];

#[test]
fn prometheus_takes_the_configuration_and_the_rules() {
    for file in ["prometheus", "compose"] {
        let file = deploy(&format!("prometheus/{file}.yaml"));
        succeed(tool("promtool").args(["check", "config"]).arg(file));
    }
}

#[test]
fn alerts_fire_and_stay_silent_as_their_tests_say() {
    let files = RULE_TESTS.map(|name| deploy(&format!("prometheus/tests/{name}.yaml")));
    println!("{}", succeed(tool("promtool").args(["test", "rules"]).args(files)));
}

#[test]
fn every_alert_is_tested_both_ways() {
    let mut cases: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for file in RULE_TESTS {
        let tests = std::fs::read_to_string(deploy(&format!("prometheus/tests/{file}.yaml"))).unwrap();
        for case in yaml(&tests).iter().flat_map(|file| items(at(file, "/tests")).collect::<Vec<_>>()) {
            for alert in items(at(case, "/alert_rule_test")) {
                let fires = items(at(alert, "/exp_alerts")).next().is_some();
                cases.entry(text(alert, "/alertname").to_owned()).or_default().insert(fires);
            }
        }
    }
    for alert in alerts() {
        let name = text(&alert, "/alert");
        assert_eq!(cases.get(name).map_or(0, BTreeSet::len), 2, "{name}: tested both ways?");
    }
}

#[test]
fn every_alert_has_a_runbook_section() {
    let runbook = std::fs::read_to_string(repository().join("docs/runbook.md")).unwrap();
    for alert in alerts() {
        let name = text(&alert, "/alert");
        assert!(runbook.contains(&format!("\n### {name}\n")), "docs/runbook.md has no section {name}");
        let anchor = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(text(&alert, "/annotations/runbook"), anchor);
        assert!(matches!(text(&alert, "/labels/severity"), "page" | "ticket"), "{name}");
    }
}

#[test]
fn the_operators_rules_are_the_rules() {
    succeed(tool("python3").arg(deploy("check/rules.py")));
}

#[test]
fn committed_dashboards_are_what_the_code_makes() {
    succeed(tool("python3").arg(deploy("grafana/generate.py")));
}

#[test]
fn every_panel_has_a_unit_a_description_and_a_query() {
    for (uid, dashboard) in dashboards() {
        assert_eq!(text(&dashboard, "/uid"), uid);
        for panel in items(at(&dashboard, "/panels")).filter(|p| at(p, "/type") != "row") {
            let name = format!("{uid}: {}", text(panel, "/title"));
            assert!(!text(panel, "/description").is_empty(), "{name}");
            assert!(!text(panel, "/fieldConfig/defaults/unit").is_empty(), "{name}");
            assert!(items(at(panel, "/targets")).next().is_some(), "{name}");
        }
    }
}

#[test]
fn panels_rate_over_the_rate_interval_only() {
    for (place, query) in panel_queries() {
        let ranges = query.split('[').skip(1).map(|rest| rest.split(']').next().unwrap());
        for range in ranges {
            assert_eq!(range, "$__rate_interval", "{place}: {query}");
        }
    }
}

#[test]
fn quantiles_are_never_stacked() {
    for (uid, dashboard) in dashboards() {
        for panel in items(at(&dashboard, "/panels")) {
            let stacked = at(panel, "/fieldConfig/defaults/custom/stacking/mode") == "normal";
            let quantile =
                items(at(panel, "/targets")).any(|t| text(t, "/expr").contains("histogram_quantile"));
            assert!(!(stacked && quantile), "{uid}: {}", text(panel, "/title"));
        }
    }
}

#[test]
fn every_metric_and_label_in_a_query_is_declared() {
    let declared = declared();
    let recorded: BTreeSet<String> =
        rules().iter().filter_map(|rule| at(rule, "/record").as_str()).map(str::to_owned).collect();
    let mut queries = panel_queries();
    queries.extend(rules().iter().map(|rule| ("rules".to_owned(), text(rule, "/expr").to_owned())));
    queries.push(("keda".to_owned(), keda_query()));
    let mut used = BTreeSet::new();
    for (place, query) in &queries {
        for name in metric_names(query) {
            if name.contains(':') {
                assert!(recorded.contains(name), "{place}: nothing records {name}");
                continue;
            }
            let base = base_name(name, &declared);
            assert!(declared.contains_key(base), "{place}: no service declares {name}\n{query}");
            used.insert(base);
        }
        let known: BTreeSet<&str> = metric_names(query)
            .into_iter()
            .filter_map(|name| declared.get(base_name(name, &declared)))
            .flat_map(|metric| metric.labels.iter().map(String::as_str))
            .chain(LABELS_OF_PROMETHEUS)
            .collect();
        // What a rule recorded has the labels that the rule kept.
        for label in label_names(query).into_iter().filter(|_| !query.contains("firstlight:")) {
            assert!(known.contains(label), "{place}: {label:?} is no label of these metrics\n{query}");
        }
    }
    println!("{} queries use {} of {} declared metrics", queries.len(), used.len(), declared.len());
}

/// Declared metrics and their labels, as both services list them.
fn declared() -> BTreeMap<String, Metric> {
    let mut all = BTreeMap::new();
    for service in ["scheduler-svc", "engine-svc"] {
        for line in succeed(program(service).arg("metrics")).lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [name, kind, _unit, labels, _help] = fields[..] else {
                panic!("{service} metrics: {line:?}")
            };
            let metric = Metric {
                histogram: kind == "histogram",
                labels: labels.split(',').filter(|l| !l.is_empty()).map(str::to_owned).collect(),
            };
            all.insert(name.to_owned(), metric);
        }
    }
    all
}

struct Metric {
    histogram: bool,
    labels: BTreeSet<String>,
}

/// A series' name without what a histogram appends.
fn base_name<'a>(name: &'a str, declared: &BTreeMap<String, Metric>) -> &'a str {
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    base.filter(|base| declared.get(*base).is_some_and(|metric| metric.histogram)).unwrap_or(name)
}

/// Names of series in a query: words that start with our prefix and are not inside a string.
fn metric_names(query: &str) -> Vec<&str> {
    let outside = query.split('"').step_by(2);
    let words =
        outside.flat_map(|part| part.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c))));
    words.filter(|word| word.starts_with("firstlight")).collect()
}

/// Labels that Prometheus sets by itself.
const LABELS_OF_PROMETHEUS: [&str; 4] = ["instance", "job", "namespace", "le"];

/// Labels that a query selects or groups by.
fn label_names(query: &str) -> Vec<&str> {
    let list = |open: &str, close: char| -> Vec<&str> {
        query
            .split(open)
            .skip(1)
            .filter_map(|rest| rest.split(close).next())
            .flat_map(|list| list.split(','))
            .collect()
    };
    let selected = list("{", '}').into_iter().filter_map(|matcher| matcher.split(['=', '!']).next());
    let grouped = list("by (", ')').into_iter();
    selected
        .chain(grouped)
        .map(str::trim)
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect()
}

fn rules() -> Vec<Value> {
    let files = ["recording", "alerts"].map(|name| {
        yaml(&std::fs::read_to_string(deploy(&format!("prometheus/rules/{name}.yaml"))).unwrap())
    });
    let groups = files.iter().flatten().flat_map(|file| items(at(file, "/groups")));
    groups.flat_map(|group| items(at(group, "/rules")).cloned().collect::<Vec<_>>()).collect()
}

fn alerts() -> Vec<Value> {
    rules().into_iter().filter(|rule| at(rule, "/alert").is_string()).collect()
}

fn keda_query() -> String {
    let component = std::fs::read_to_string(deploy("kubernetes/components/keda/scaledobject.yaml")).unwrap();
    text(&yaml(&component)[0], "/spec/triggers/0/metadata/query").to_owned()
}

fn dashboards() -> Vec<(&'static str, Value)> {
    let read = |uid: &str| {
        let json = std::fs::read_to_string(deploy(&format!("grafana/dashboards/{uid}.json"))).unwrap();
        serde_json::from_str(&json).unwrap()
    };
    DASHBOARDS.map(|uid| (uid, read(uid))).into()
}

/// Where each query stands, and the query.
pub fn panel_queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for (uid, dashboard) in dashboards() {
        for panel in items(at(&dashboard, "/panels")) {
            for target in items(at(panel, "/targets")) {
                let place = format!("{uid}: {}", text(panel, "/title"));
                queries.push((place, text(target, "/expr").to_owned()));
            }
        }
    }
    queries
}
