//! deploy/docker: the Dockerfiles, and the services run from the root filesystem they describe.

use crate::support::{deploy, succeed, tool};

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
