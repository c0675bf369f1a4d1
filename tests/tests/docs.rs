//! What the documents say exists: flags that programs have, files that are there.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use firstlight_tests::assets;

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "bench-client/README.md",
    "deploy/README.md",
    "docs/deploy.md",
    "docs/operate.md",
    "docs/runbook.md",
];
/// Folders that file names in the documents may start from.
const ROOTS: [&str; 4] = [".", "scheduler-svc/src", "engine-svc/src", "engine-svc"];
/// Flags of other programs that the documents mention.
const FOREIGN: [&str; 5] = ["--bench", "--build", "--no-default-features", "--release", "--scale"];
/// Flags of our scripts.
const SCRIPTS: [&str; 1] = ["--write"];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

fn read(document: &str) -> String {
    fs::read_to_string(repository().join(document)).unwrap_or_else(|e| panic!("{document}: {e}"))
}

/// Words of `text` that start with `--`, such as `--threads`.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.split(move |c| !name(c)).filter(|word| {
        word.strip_prefix("--").is_some_and(|w| w.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

fn help(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(assets::program(program)).args(arguments).arg("--help").output().expect("--help");
    String::from_utf8(output.stdout).expect("help is text")
}

/// The subcommands that a page of help lists.
fn commands(page: &str) -> impl Iterator<Item = &str> {
    let listed =
        page.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A name is followed by what it does; lines that go on with that are indented further.
    let names = listed.filter_map(|line| {
        line.strip_prefix("  ")?.split_whitespace().next().filter(|_| !line.starts_with("   "))
    });
    names.filter(|name| *name != "help")
}

#[test]
fn every_flag_the_documents_name_exists() {
    let mut pages = vec![help("engine-svc", &[]), help("scheduler-svc", &[])];
    for program in ["engine-svc", "scheduler-svc", "bench-client"] {
        pages.extend(commands(&help(program, &[])).map(|command| help(program, &[command])));
    }
    let known: BTreeSet<&str> =
        pages.iter().flat_map(|page| flags(page)).chain(FOREIGN).chain(SCRIPTS).collect();
    for document in DOCUMENTS {
        let text = read(document);
        let unknown: BTreeSet<_> = flags(&text).filter(|flag| !known.contains(flag)).collect();
        assert!(unknown.is_empty(), "{document} names flags that no program has: {unknown:?}");
    }
}

#[test]
fn every_file_the_architecture_names_is_there() {
    let text = read("ARCHITECTURE.md");
    let names: Vec<_> = text.split('`').skip(1).step_by(2).filter(|name| name.contains('/')).collect();
    assert!(names.len() > 30, "the document names its files in backticks: {names:?}");
    for name in names {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
        let found = ROOTS.iter().any(|root| repository().join(root).join(name).exists());
        assert!(!plain || found, "ARCHITECTURE.md names {name}, which is not there");
    }
}
