//! deploy/kubernetes: schemas, and that ports, probes and flags exist in the programs.

use std::collections::{BTreeMap, BTreeSet};

use firstlight_proto::serve::health;
use serde_json::Value;

use crate::support::{
    COMPOSITIONS, at, declared_flags, deploy, fail, items, program, render, succeed, text, tool,
};

#[test]
fn every_overlay_and_component_is_valid() {
    let folders = COMPOSITIONS.map(deploy);
    let report = succeed(tool("python3").arg(deploy("check/manifests.py")).args(folders));
    assert_eq!(report.matches(" 0 faults").count(), COMPOSITIONS.len(), "{report}");
    println!("{report}");
}

#[test]
fn a_resource_without_a_schema_or_with_an_unknown_field_fails() {
    let folder = std::env::temp_dir().join(format!("firstlight-manifests-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("kustomization.yaml"), "resources: [all.yaml]\n").unwrap();
    let resource = |kind: &str, rest: &str| format!("{kind}\nmetadata: {{name: a}}\n{rest}\n---\n");
    let all = resource("apiVersion: example.com/v1\nkind: Unheard", "spec: {}")
        + &resource("apiVersion: v1\nkind: Service", "spec: {prots: []}")
        + &resource("apiVersion: keda.sh/v1alpha1\nkind: ScaledObject", "spec: {triggers: []}");
    std::fs::write(folder.join("all.yaml"), all).unwrap();
    let said = fail(tool("python3").arg(deploy("check/manifests.py")).arg(&folder));
    std::fs::remove_dir_all(&folder).unwrap();
    for fault in ["Unheard/a: no schema", "'prots' was unexpected", "'scaleTargetRef' is a required property"]
    {
        assert!(said.contains(fault), "{fault:?} is missing:\n{said}");
    }
}

#[test]
fn every_variable_is_a_flag_of_its_program() {
    let mut checked = 0;
    for (composition, pod) in pods() {
        let service = pod.service();
        if service == "bench-client" {
            continue;
        }
        let flags = declared_flags(service);
        for name in pod.environment.keys().filter(|name| name.starts_with("FIRSTLIGHT_")) {
            assert!(flags.contains(name), "{composition}: {service} has no flag for {name}");
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} variables were found");
}

#[test]
fn a_model_in_a_volume_is_called_by_more_than_its_folder() {
    let mut checked = 0;
    for (composition, pod) in pods() {
        let has = |name: &str| pod.environment.contains_key(name);
        assert_eq!(has("FIRSTLIGHT_MODEL"), has("FIRSTLIGHT_MODEL_NAME"), "{composition}: {}", pod.service());
        checked += usize::from(has("FIRSTLIGHT_MODEL"));
    }
    assert!(checked >= 8, "only {checked} pods with a model were found");
}

#[test]
fn the_bench_job_uses_flags_that_exist() {
    let help = succeed(program("bench-client").args(["run", "--help"]));
    for (_, pod) in pods().into_iter().filter(|(_, pod)| pod.service() == "bench-client") {
        for arg in items(at(&pod.container, "/args")).filter_map(Value::as_str) {
            let flag = arg.split('=').next().unwrap();
            assert!(!flag.starts_with("--") || help.contains(flag), "bench-client run has no {flag}");
        }
    }
}

#[test]
fn every_probe_asks_the_health_service_that_is_there() {
    for (composition, pod) in pods() {
        if pod.service() == "bench-client" {
            continue;
        }
        let ports = pod.listening();
        for (probe, allowed) in [
            ("startupProbe", &[health::LIVE, health::READY][..]),
            ("readinessProbe", &[health::READY]),
            // Anything else would restart a service for being busy, or for draining.
            ("livenessProbe", &[health::LIVE]),
        ] {
            let grpc = at(&pod.container, &format!("/{probe}/grpc"));
            let (port, asked) = (at(grpc, "/port").as_u64().unwrap(), text(grpc, "/service"));
            assert!(allowed.contains(&asked), "{composition}: {probe} asks for {asked}");
            // With TLS on, the kubelet cannot talk to the main listener.
            let tls = pod.environment.contains_key("FIRSTLIGHT_TLS_CERT");
            let listener = if tls { "FIRSTLIGHT_HEALTH_LISTEN" } else { "FIRSTLIGHT_LISTEN" };
            assert_eq!(Some(&port), ports.get(listener), "{composition}: {probe} of {}", pod.service());
        }
    }
}

#[test]
fn declared_ports_are_the_ports_that_are_listened_on() {
    for (composition, pod) in pods() {
        let listened: BTreeSet<u64> = pod
            .listening()
            .into_iter()
            .filter(|(name, _)| *name != "FIRSTLIGHT_ADMIN_LISTEN")
            .map(|p| p.1)
            .collect();
        let declared =
            items(at(&pod.container, "/ports")).map(|p| at(p, "/containerPort").as_u64().unwrap()).collect();
        assert_eq!(listened, declared, "{composition}: {}", pod.service());
    }
}

#[test]
fn services_and_policies_name_ports_that_pods_have() {
    for composition in COMPOSITIONS {
        let resources = render(composition);
        let ports: Vec<Value> = pods_of(&resources)
            .iter()
            .flat_map(|pod| items(at(&pod.container, "/ports")).cloned().collect::<Vec<_>>())
            .collect();
        let exists = |wanted: &Value| match wanted {
            Value::String(name) => ports.iter().any(|port| at(port, "/name") == name.as_str()),
            number => ports.iter().any(|port| at(port, "/containerPort") == number),
        };
        for service in resources.iter().filter(|r| at(r, "/kind") == "Service") {
            for port in items(at(service, "/spec/ports")) {
                assert!(exists(at(port, "/targetPort")), "{composition}: {service:#}");
            }
        }
        for policy in resources.iter().filter(|r| at(r, "/kind") == "NetworkPolicy") {
            for rule in items(at(policy, "/spec/ingress")) {
                for port in items(at(rule, "/ports")) {
                    assert!(exists(at(port, "/port")), "{composition}: {policy:#}");
                }
            }
        }
    }
}

#[test]
fn services_say_whether_they_speak_tls() {
    for composition in COMPOSITIONS.iter().filter(|c| !c.ends_with("bench")) {
        let resources = render(composition);
        let tls = pods_of(&resources).iter().any(|pod| pod.environment.contains_key("FIRSTLIGHT_TLS_CERT"));
        let expected = if tls { "https" } else { "kubernetes.io/h2c" };
        for service in resources.iter().filter(|r| at(r, "/kind") == "Service") {
            assert_eq!(text(service, "/spec/ports/0/appProtocol"), expected, "{composition}");
        }
    }
}

#[test]
fn every_dashboard_is_a_config_map_that_grafana_looks_for() {
    let resources = render("check/compositions/observed");
    let mut shown: Vec<&str> = resources
        .iter()
        .filter(|r| at(r, "/kind") == "ConfigMap" && at(r, "/metadata/labels/grafana_dashboard") == "1")
        .flat_map(|r| at(r, "/data").as_object().unwrap().keys().map(String::as_str))
        .collect();
    shown.sort_unstable();
    let mut files: Vec<String> = std::fs::read_dir(deploy("grafana/dashboards"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort_unstable();
    assert_eq!(shown, files);
}

#[test]
fn the_engines_name_is_a_headless_service() {
    for composition in COMPOSITIONS.iter().filter(|c| !c.ends_with("bench")) {
        let resources = render(composition);
        let pods = pods_of(&resources);
        let scheduler = pods.iter().find(|pod| pod.service() == "scheduler-svc").unwrap();
        let (name, port) = scheduler.environment["FIRSTLIGHT_ENGINE_DNS"].split_once(':').unwrap();
        let service =
            resources.iter().find(|r| at(r, "/kind") == "Service" && at(r, "/metadata/name") == name);
        let service = service.unwrap_or_else(|| panic!("{composition}: no service {name}"));
        assert_eq!(at(service, "/spec/clusterIP"), "None", "{composition}");
        let engine = pods.iter().find(|pod| pod.service() == "engine-svc").unwrap();
        assert_eq!(engine.listening()["FIRSTLIGHT_LISTEN"].to_string(), port, "{composition}");
    }
}

#[test]
fn pods_have_no_rights_to_spare_and_time_to_drain() {
    for (composition, pod) in pods() {
        let spec = &pod.spec;
        let name = format!("{composition}: {}", pod.service());
        assert_eq!(at(spec, "/automountServiceAccountToken"), false, "{name}");
        // Variables such as FIRSTLIGHT_ENGINE_PORT, made from service names, could be taken for flags.
        assert_eq!(at(spec, "/enableServiceLinks"), false, "{name}");
        assert_eq!(at(spec, "/securityContext/runAsNonRoot"), true, "{name}");
        assert_eq!(at(spec, "/securityContext/seccompProfile/type"), "RuntimeDefault", "{name}");
        for container in items(at(spec, "/containers")).chain(items(at(spec, "/initContainers"))) {
            assert_eq!(at(container, "/securityContext/readOnlyRootFilesystem"), true, "{name}");
            assert_eq!(at(container, "/securityContext/allowPrivilegeEscalation"), false, "{name}");
            assert_eq!(at(container, "/securityContext/capabilities/drop/0"), "ALL", "{name}");
            assert!(at(container, "/resources/requests/memory").is_string(), "{name}");
            assert!(text(container, "/image").contains(':'), "{name}: image without a tag");
        }
        let Some(drain) = pod.environment.get("FIRSTLIGHT_DRAIN_SECONDS") else { continue };
        let pre_stop = at(&pod.container, "/lifecycle/preStop/sleep/seconds").as_u64().unwrap();
        let grace = at(spec, "/terminationGracePeriodSeconds").as_u64().unwrap();
        assert!(grace > pre_stop + drain.parse::<u64>().unwrap(), "{name}: killed while it drains");
    }
}

#[test]
fn engines_on_cpus_are_guaranteed_their_cores() {
    let pods = pods_of(&render("kubernetes/overlays/cpu"));
    let engine = pods.iter().find(|pod| pod.service() == "engine-svc").unwrap();
    let all = ["/containers", "/initContainers"].map(|kind| items(at(&engine.spec, kind)));
    let all: Vec<&Value> = all.into_iter().flatten().collect();
    assert!(all.len() > 1, "an init container counts too");
    for container in all {
        let name = text(container, "/name");
        for resource in ["cpu", "memory"] {
            let asked = text(container, &format!("/resources/requests/{resource}"));
            let limit = text(container, &format!("/resources/limits/{resource}"));
            assert_eq!(asked, limit, "{name}: {resource}");
        }
    }
    // The static CPU manager gives whole cores only.
    let cores = text(&engine.container, "/resources/limits/cpu");
    assert!(cores.parse::<u32>().is_ok(), "{cores} are no whole cores");
    assert_eq!(engine.environment["FIRSTLIGHT_THREADS"], cores);
}

#[test]
fn everything_is_closed_but_what_policies_open() {
    for composition in COMPOSITIONS.iter().filter(|c| !c.ends_with("bench")) {
        let resources = render(composition);
        let policy = |name: &str| {
            let found = resources
                .iter()
                .find(|r| at(r, "/kind") == "NetworkPolicy" && at(r, "/metadata/name") == name);
            found.unwrap_or_else(|| panic!("{composition}: no policy {name}"))
        };
        let deny = policy("deny-all");
        assert_eq!(at(deny, "/spec/podSelector"), &serde_json::json!({}), "{composition}");
        assert_eq!(at(deny, "/spec/policyTypes"), &serde_json::json!(["Ingress", "Egress"]), "{composition}");
        let from = |name: &str, app: &str| {
            let only = at(policy(name), "/spec/ingress/0/from");
            assert_eq!(only.as_array().map(Vec::len), Some(1), "{composition}: {name}");
            assert_eq!(
                text(only, "/0/podSelector/matchLabels/app.kubernetes.io~1name"),
                app,
                "{composition}"
            );
        };
        from("engine-from-scheduler", "scheduler");
        from("metrics-from-prometheus", "prometheus");
    }
}

#[test]
fn the_admin_listener_stays_on_loopback() {
    for (composition, pod) in pods() {
        if let Some(listen) = pod.environment.get("FIRSTLIGHT_ADMIN_LISTEN") {
            assert!(listen.starts_with("127.0.0.1:"), "{composition}: {listen}");
        }
    }
}

/// A pod template with its main container and that container's environment.
struct Pod {
    spec: Value,
    container: Value,
    environment: BTreeMap<String, String>,
}

impl Pod {
    /// The program that its image runs.
    fn service(&self) -> &'static str {
        match text(&self.container, "/image").split(':').next() {
            Some("firstlight/scheduler") => "scheduler-svc",
            Some("firstlight/engine" | "firstlight/engine-cuda") => "engine-svc",
            Some("firstlight/bench") => "bench-client",
            image => panic!("no program for image {image:?}"),
        }
    }

    /// The ports of its listeners, by the variable that sets each.
    fn listening(&self) -> BTreeMap<&str, u64> {
        let listeners = self.environment.iter().filter(|(name, _)| name.ends_with("LISTEN"));
        listeners
            .map(|(name, addr)| (name.as_str(), addr.rsplit_once(':').unwrap().1.parse().unwrap()))
            .collect()
    }
}

fn pods() -> Vec<(&'static str, Pod)> {
    COMPOSITIONS.into_iter().flat_map(|c| pods_of(&render(c)).into_iter().map(move |pod| (c, pod))).collect()
}

fn pods_of(resources: &[Value]) -> Vec<Pod> {
    let templates = resources.iter().filter(|r| at(r, "/spec/template/spec").is_object());
    templates
        .map(|resource| {
            let spec = at(resource, "/spec/template/spec").clone();
            let container = at(&spec, "/containers/0").clone();
            let environment = environment(&container, resources);
            Pod { spec, container, environment }
        })
        .collect()
}

fn environment(container: &Value, resources: &[Value]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for from in items(at(container, "/envFrom")) {
        let name = text(from, "/configMapRef/name");
        let map = resources.iter().find(|r| at(r, "/kind") == "ConfigMap" && at(r, "/metadata/name") == name);
        let data = at(map.unwrap_or_else(|| panic!("no ConfigMap {name}")), "/data").as_object().unwrap();
        all.extend(data.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())));
    }
    for variable in items(at(container, "/env")) {
        let value = at(variable, "/value").as_str().unwrap_or_default();
        all.insert(text(variable, "/name").to_owned(), value.to_owned());
    }
    all
}
