//! What came of checking modules one after another, as JSON.

use super::Checked;

/// What came of each module that was checked.
pub struct Report {
    checked: Vec<(String, Checked)>,
    /// The last of them left the device unusable: the others could not be checked.
    stopped: bool,
}

impl Report {
    /// Checks `modules`, by name, as long as the device is `usable` after one that is wrong.
    pub fn of<M>(
        modules: impl IntoIterator<Item = (String, M)>,
        mut check: impl FnMut(M) -> Checked,
        mut usable: impl FnMut() -> bool,
    ) -> Self {
        let mut report = Self { checked: Vec::new(), stopped: false };
        for (name, module) in modules {
            let checked = check(module);
            report.stopped = checked.is_err() && !usable();
            report.checked.push((name, checked));
            if report.stopped {
                break;
            }
        }
        report
    }

    /// Whether every module was checked and is right.
    pub fn is_well(&self) -> bool {
        self.checked.iter().all(|(_, checked)| checked.is_ok())
    }

    /// `head` is of the device: pairs of a name and its value in JSON.
    pub fn to_json(&self, head: &[(&str, String)]) -> String {
        let stopped_in = self.checked.last().filter(|_| self.stopped).map(|(name, _)| quoted(name));
        let stopped_in = ("stopped_in", stopped_in.unwrap_or_else(|| "null".to_owned()));
        let head = head.iter().chain([&stopped_in]).map(|(name, value)| format!("  \"{name}\": {value},\n"));
        let modules: Vec<String> = self.checked.iter().map(|(name, checked)| entry(name, checked)).collect();
        format!("{{\n{}  \"modules\": [\n{}\n  ]\n}}", head.collect::<String>(), modules.join(",\n"))
    }
}

fn entry(name: &str, checked: &Checked) -> String {
    let (part, wrong) = match checked {
        Ok(part) => (format!("{part:.4}"), "null".to_owned()),
        Err(reason) => ("null".to_owned(), quoted(reason)),
    };
    format!("    {{\"module\": {}, \"error_part\": {part}, \"wrong\": {wrong}}}", quoted(name))
}

/// As a string of JSON.
pub fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => " ".to_owned(),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}
