//! The other budget: a file with the fields to change, in the form that the admin RPC `SetBudget` takes as `change`.

use std::path::Path;

use anyhow::Context as _;
use firstlight_proto::v1;

use crate::{admission::Budget, dispatch::Budgets};

/// A budget to try, and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowPolicy {
    /// The file's name without its extension; label of its metrics.
    pub name: String,
    /// The base budget with the file's fields.
    pub budget: Budget,
}

impl ShadowPolicy {
    /// Reads `path` over the base of `budgets`.
    ///
    /// # Errors
    /// Names the file, and the field that is unknown or out of range.
    pub fn load(path: &Path, budgets: &Budgets) -> anyhow::Result<Self> {
        let read = || -> anyhow::Result<Budget> {
            let change: v1::Budget = serde_json::from_str(&std::fs::read_to_string(path)?)?;
            Ok(budgets.with(&change)?)
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, budget: read().with_context(|| path.display().to_string())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(json: &str) -> anyhow::Result<ShadowPolicy> {
        let folder =
            std::env::temp_dir().join(format!("firstlight-shadow-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("small-rounds.json");
        std::fs::write(&path, json).unwrap();
        let budgets = Budgets::new(&v1::Budget { max_pending: Some(77), ..v1::Budget::default() }).unwrap();
        let loaded = ShadowPolicy::load(&path, &budgets);
        std::fs::remove_dir_all(folder).unwrap();
        loaded
    }

    #[test]
    fn a_file_changes_what_it_names_and_nothing_else() {
        let policy = load(r#"{"prefill_max_batch_size": 4, "policy": "pack"}"#).unwrap();
        assert_eq!(policy.name, "small-rounds");
        assert_eq!((policy.budget.prefill_max_batch_size, policy.budget.max_pending), (4, 77));
    }

    #[test]
    fn a_field_that_is_unknown_or_out_of_range_is_named() {
        let refused = |json| format!("{:#}", load(json).unwrap_err());
        assert!(refused(r#"{"batch": 4}"#).contains("batch"));
        assert!(refused(r#"{"lookahead": 0}"#).contains("lookahead"));
    }
}
