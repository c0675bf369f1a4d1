//! The runs of one side, from the lines of `run --jsonl-out`.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use firstlight_proto::cause;
use serde_json::{Map, Value};

use crate::join::part_names;

/// Times that are compared beside the parts of TTFT and the causes of waiting.
pub const TIMES: [&str; 4] = ["ttft", "tpot", "latency", "queue_wait_total"];
/// What is left of TTFT beside its parts.
pub const UNEXPLAINED: &str = "unexplained";

/// Why a side cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A file or folder cannot be read.
    #[error("reading {}: {reason}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// A folder holds no run.
    #[error("{} holds no .jsonl file", .0.display())]
    Empty(
        /// The folder.
        PathBuf,
    ),
    /// A line is not of a run.
    #[error("{} line {line}: {what}; a file that `bench-client run --jsonl-out` of this version wrote is needed",
            path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// Files of one side are of different loads.
    #[error("{} and {} are of different loads: {:?} and {:?}", .0.display(), .1.display(), .2, .3)]
    Mixed(
        /// One file.
        PathBuf,
        /// Another.
        PathBuf,
        /// The load of the first.
        String,
        /// The load of the second.
        String,
    ),
}

/// One or several runs of one load under one condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// What the runs are called.
    pub label: String,
    /// The load in words, with its seed.
    pub load: String,
    /// Whether any run was headed INVALID.
    pub invalid: bool,
    /// The requests of each run, by index.
    pub runs: Vec<BTreeMap<usize, Request>>,
}

/// One request, as it is compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// What was asked and when.
    pub fingerprint: String,
    /// Whether the server completed it.
    pub completed: bool,
    /// In the order of [`names`], ms.
    values: Vec<Option<f64>>,
}

/// Every figure of a request: times, parts of TTFT with what they leave, causes.
pub fn names() -> impl Iterator<Item = &'static str> {
    let causes = cause::ALL.into_iter().map(|c| c.label());
    TIMES.into_iter().chain(part_names()).chain([UNEXPLAINED]).chain(causes)
}

impl Request {
    /// A figure by name, ms; `None` when it was not measured.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values[names().position(|n| n == name)?]
    }
}

impl Side {
    /// Reads `paths`: files of lines, or folders whose `.jsonl` files are taken in order of name. Each
    /// repeat in each file is a run.
    ///
    /// # Errors
    /// Names the file and line that cannot be used.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Unreadable> {
        let mut side = Self::default();
        let mut first: Option<PathBuf> = None;
        for path in files(paths)? {
            let text = fs::read_to_string(&path)
                .map_err(|reason| Unreadable::File { path: path.clone(), reason })?;
            let one = Self::parse(&text).map_err(|(line, what)| Unreadable::Line {
                path: path.clone(),
                line,
                what,
            })?;
            match &first {
                Some(first) if side.load != one.load => {
                    return Err(Unreadable::Mixed(first.clone(), path, side.load, one.load));
                }
                Some(_) => {}
                None => {
                    first = Some(path);
                    (side.label, side.load) = (one.label, one.load);
                }
            }
            side.invalid |= one.invalid;
            side.runs.extend(one.runs);
        }
        Ok(side)
    }

    /// The runs of one file.
    ///
    /// # Errors
    /// The line, from 1, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let columns = columns();
        let mut side = Self::default();
        let mut runs: BTreeMap<u64, BTreeMap<usize, Request>> = BTreeMap::new();
        for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
            let line: Map<String, Value> = serde_json::from_str(line).map_err(|e| (number, e.to_string()))?;
            let missing = |name: &str| (number, format!("no {name:?}"));
            let word = |name: &str| line.get(name).and_then(Value::as_str).ok_or_else(|| missing(name));
            let count = |name: &str| line.get(name).and_then(Value::as_u64).ok_or_else(|| missing(name));
            let load = format!("{}, seed {}", word("load")?, count("load_seed")?);
            if number == 1 {
                (side.label, side.load) = (word("label")?.to_owned(), load);
            } else if load != side.load {
                return Err((number, format!("the load is {load:?}, above it is {:?}", side.load)));
            }
            side.invalid |= word("validity")? == "INVALID";
            let request = Request {
                fingerprint: word("fingerprint")?.to_owned(),
                completed: word("outcome")? == "finished",
                values: columns.iter().map(|name| line.get(name).and_then(Value::as_f64)).collect(),
            };
            runs.entry(count("run")?).or_default().insert(count("index")? as usize, request);
        }
        if runs.is_empty() {
            return Err((1, "no request".to_owned()));
        }
        side.runs = runs.into_values().collect();
        Ok(side)
    }
}

/// The fields of a line that hold the figures.
fn columns() -> Vec<String> {
    let causes = cause::ALL.map(|c| c.label());
    let field = |name: &str| match causes.contains(&name) {
        true => format!("cause_{name}_ms"),
        false => format!("{name}_ms"),
    };
    names().map(field).collect()
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Unreadable> {
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut inside =
                lines_in(path).map_err(|reason| Unreadable::File { path: path.clone(), reason })?;
            if inside.is_empty() {
                return Err(Unreadable::Empty(path.clone()));
            }
            inside.sort();
            all.extend(inside);
        } else {
            all.push(path.clone());
        }
    }
    Ok(all)
}

fn lines_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect();
    Ok(entries?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect())
}
