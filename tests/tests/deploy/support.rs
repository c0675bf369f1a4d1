//! Tools, files and programs that the checks use.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use firstlight_tests::assets;
use serde_json::Value;

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

/// A path below deploy/.
pub fn deploy(path: &str) -> PathBuf {
    repository().join("deploy").join(path)
}

/// Every overlay, and every component in at least one place.
pub const COMPOSITIONS: [&str; 8] = [
    "kubernetes/overlays/cpu",
    "kubernetes/overlays/gpu",
    "kubernetes/overlays/dev",
    "kubernetes/bench",
    "check/compositions/mtls",
    "check/compositions/mtls-bench",
    "check/compositions/observed",
    "check/compositions/model-from-image",
];

/// A tool that deploy/check/tools.sh brings, fetched when it is not there.
pub fn tool(name: &str) -> Command {
    static TOOLS: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = succeed(&mut Command::new(deploy("check/tools.sh")));
        PathBuf::from(folder.trim_end())
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([TOOLS.clone()].into_iter().chain(std::env::split_paths(&path)));
    let mut command = Command::new(TOOLS.join(name));
    command.env("PATH", path.expect("no colon in the cache folder's path"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(repository());
    command
}

/// Runs a command that must succeed; its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Runs a command that must fail; what it said.
pub fn fail(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{command:?} succeeded\n{said}");
    said
}

/// The documents of a YAML file.
pub fn yaml(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The resources of a kustomization below deploy/.
pub fn render(composition: &str) -> Vec<Value> {
    yaml(&succeed(tool("kubectl").arg("kustomize").arg(deploy(composition))))
}

/// One of our programs, as built by `cargo build --release`.
pub fn program(name: &str) -> Command {
    Command::new(assets::program(name))
}

/// The environment variables that a program takes its flags from.
pub fn declared_flags(service: &str) -> BTreeSet<String> {
    let help = succeed(program(service).arg("--help"));
    let after = help.split("[env: ").skip(1);
    after.filter_map(|rest| rest.split(['=', ']']).next()).map(str::to_owned).collect()
}

/// Follows a path of keys and indices; null where it ends.
pub fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// The items of an array; none where there is no array.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A string that must be there.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).as_str().unwrap_or_else(|| panic!("{pointer} is no string in {value:#}"))
}
