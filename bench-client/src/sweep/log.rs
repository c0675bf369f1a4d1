//! The file of points: a line as soon as a point is measured, so that a sweep that was interrupted or
//! killed goes on where it was.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{Point, axis::Setting};

/// The points that were measured so far.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    sweep: String,
    points: Vec<Point>,
}

impl Log {
    /// Opens the file of the sweep whose other flags are `sweep`; `fresh` forgets what it holds.
    ///
    /// # Errors
    /// When it cannot be read or written, or holds points of another sweep.
    pub fn open(path: &Path, sweep: String, fresh: bool) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        let text = match fs::read_to_string(path) {
            Ok(text) if !fresh => text,
            Ok(_) => String::new(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(named),
        };
        // A sweep that was killed may have left half a line at the end.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let points: Result<Vec<Point>, _> = whole.lines().map(serde_json::from_str).collect();
        let points = points.with_context(|| format!("{} is not the file of a sweep", path.display()))?;
        if let Some(other) = points.iter().find(|p| p.sweep != sweep) {
            bail!(
                "{} holds a sweep with other flags; name another --out, or start over with --fresh\n  there: {}\n  here:  {sweep}",
                path.display(),
                other.sweep
            );
        }
        let mut file = File::options().create(true).append(true).open(path).with_context(named)?;
        file.set_len(whole.len() as u64).with_context(named)?;
        file.flush()?;
        Ok(Self { path: path.to_owned(), file, sweep, points })
    }

    /// A point that was measured before.
    pub fn get(&self, settings: &[Setting]) -> Option<&Point> {
        self.points.iter().find(|p| p.settings == settings)
    }

    /// All points, in the order in which they were measured.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Adds a point, on disk before anything else is measured.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, settings: Vec<Setting>, results: crate::report::Results) -> anyhow::Result<()> {
        let point = Point { sweep: self.sweep.clone(), settings, results };
        let line = format!("{}\n", serde_json::to_string(&point)?);
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| format!("writing {}", self.path.display()))?;
        self.points.push(point);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(value: &str) -> Vec<Setting> {
        vec![Setting { flag: "request-rate".into(), value: value.into() }]
    }

    fn scratch() -> PathBuf {
        std::env::temp_dir().join(format!("sweep-{}.jsonl", uuid::Uuid::now_v7()))
    }

    #[test]
    fn a_sweep_goes_on_from_its_whole_lines() {
        let path = scratch();
        let mut log = Log::open(&path, "s".into(), false).unwrap();
        log.add(setting("5"), Default::default()).unwrap();
        log.add(setting("10"), Default::default()).unwrap();
        drop(log);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut log = Log::open(&path, "s".into(), false).unwrap();
        assert!(log.get(&setting("5")).is_some() && log.get(&setting("10")).is_none(), "half a line is none");
        log.add(setting("10"), Default::default()).unwrap();
        assert_eq!(Log::open(&path, "s".into(), false).unwrap().points().len(), 2);
        assert_eq!(Log::open(&path, "s".into(), true).unwrap().points().len(), 0);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn points_of_another_sweep_do_not_mix() {
        let path = scratch();
        Log::open(&path, "64 tokens".into(), false).unwrap().add(setting("5"), Default::default()).unwrap();
        let said = Log::open(&path, "32 tokens".into(), false).unwrap_err().to_string();
        assert!(
            said.contains("--fresh") && said.contains("64 tokens") && said.contains("32 tokens"),
            "{said}"
        );
        fs::remove_file(path).unwrap();
    }
}
