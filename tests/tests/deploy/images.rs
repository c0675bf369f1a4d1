//! deploy/docker: the Dockerfiles, and the services run from the root filesystem they describe.

use firstlight_tests::{
    assets,
    client::{Client, text_request},
    service::{Service, free_address},
    wait,
};

use crate::support::{declared_flags, deploy, succeed, tool};

const DOCKERFILES: [&str; 4] = ["scheduler", "engine", "engine-cuda", "bench"];

fn dockerfile(name: &str) -> std::path::PathBuf {
    deploy(&format!("docker/{name}.Dockerfile"))
}

#[test]
fn hadolint_finds_nothing() {
    succeed(tool("hadolint").args(DOCKERFILES.map(dockerfile)));
}

#[test]
fn images_start_from_nothing_and_run_as_nobody_special() {
    for name in DOCKERFILES {
        let text = std::fs::read_to_string(dockerfile(name)).unwrap();
        let last = &text[text.rfind("\nFROM ").unwrap()..];
        assert!(last.starts_with("\nFROM scratch\n"), "{name}: has a shell or a package manager");
        assert!(last.contains("\nUSER 65532:65532\n"), "{name}: runs as root");
        assert!(!last.contains("\nRUN "), "{name}");
        if name.starts_with("engine") {
            let libtorch = last.find("COPY --from=libtorch").unwrap();
            let program = last.find("COPY --from=build").unwrap();
            assert!(libtorch < program, "{name}: libtorch's layer changes with the program");
        }
    }
}

#[test]
fn images_and_compose_set_flags_that_exist() {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        words.filter(|word| word.starts_with("FIRSTLIGHT_")).map(str::to_owned).collect()
    };
    let compose = std::fs::read_to_string(deploy("compose.yaml")).unwrap();
    let services = compose.split("\nservices:\n").nth(1).unwrap();
    let block =
        |from: &str, to: &str| services[services.find(from).unwrap()..services.find(to).unwrap()].to_owned();
    let read = |name: &str| std::fs::read_to_string(dockerfile(name)).unwrap();
    for (service, text) in [
        ("engine-svc", block("  engine:\n", "  scheduler:\n")),
        ("scheduler-svc", block("  scheduler:\n", "  prometheus:\n")),
        ("engine-svc", read("engine")),
        ("engine-svc", read("engine-cuda")),
        ("scheduler-svc", read("scheduler")),
    ] {
        let (used, flags) = (words(&text), declared_flags(service));
        assert!(!used.is_empty(), "{service}: none found");
        for variable in used {
            assert!(flags.contains(&variable), "{service} has no flag for {variable}");
        }
    }
}

/// As in a pod: the image's files on a read-only root, its user, its environment, nothing of this machine's
/// libraries.
#[tokio::test]
#[ignore = "long: copies libtorch when the cache lies on another file system"]
async fn both_services_work_from_the_images_root_filesystem() {
    let folder = assets::scratch_folder();
    let image = |arguments: &[&str]| {
        let mut command = tool("python3");
        command.arg(deploy("docker/image.py")).args(arguments);
        command
    };
    for service in ["engine", "scheduler"] {
        succeed(&mut image(&["build", service, folder.join(service).to_str().unwrap()]));
    }
    let model = assets::tiny_llama();
    let mount = format!("{}:/models", model.parent().unwrap().display());
    let inside = format!("/models/{}", model.file_name().unwrap().to_str().unwrap());
    let start = |service: &str, address: &str, variables: &[(&str, &str)]| {
        let mut args = vec![deploy("docker/image.py").display().to_string(), format!("--mount={mount}")];
        args.extend(variables.iter().map(|(name, value)| format!("--env=FIRSTLIGHT_{name}={value}")));
        args.extend(["run", service, folder.join(service).to_str().unwrap()].map(str::to_owned));
        let python = tool("python3").get_program().to_str().unwrap().to_owned();
        Service::start(service, &python, address, &args, &folder)
    };
    let (engine_listen, listen) = (free_address(), free_address());
    let (engine_metrics, metrics, admin) = (free_address(), free_address(), free_address());
    let common = [("MODEL", inside.as_str()), ("DRAIN_SECONDS", "5")];
    let engine_flags =
        [("LISTEN", engine_listen.as_str()), ("METRICS_LISTEN", &engine_metrics), ("DTYPE", "f32")];
    let scheduler_flags = [
        ("LISTEN", listen.as_str()),
        ("METRICS_LISTEN", &metrics),
        ("ADMIN_LISTEN", &admin),
        ("ENGINE", &engine_listen),
    ];
    let mut engine = start("engine", &engine_listen, &[&common[..], &engine_flags].concat());
    let mut scheduler = start("scheduler", &listen, &[&common[..], &scheduler_flags].concat());
    wait::within_patience("the engine", engine.ready()).await;
    wait::within_patience("the scheduler", scheduler.ready()).await;

    for service in [&engine, &scheduler] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
        let user = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert!(!user.split_whitespace().skip(1).any(|uid| uid == "0"), "runs as root: {user}");
    }
    let reply = Client::connect(&listen).await.generate(text_request("hello", 8)).await.unwrap();
    assert_eq!(reply.ids.len(), 8);
    for service in [&mut scheduler, &mut engine] {
        service.terminate();
        let status = service.ended().await;
        println!("{}", service.log());
        assert!(status.success(), "{status}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
