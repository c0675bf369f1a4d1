//! Budgets by name and value, as operators write them.

use anyhow::Context as _;
use firstlight_proto::v1;
use scheduler_svc::{
    admission,
    dispatch::{budget_wire, budgets::ClassNames},
};
use serde_json::{Map, Value};

/// Reads `prefill_max_batch_size=16,policy=pack`: fields of the budget by their names on the wire.
///
/// # Errors
/// Names the field that is unknown or not of its kind.
pub fn parse(text: &str) -> Result<v1::Budget, String> {
    let mut fields = Map::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not NAME=VALUE"))?;
        let value = value.trim();
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        fields.insert(name.trim().to_owned(), value);
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// A budget as the core takes it.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The limits.
    pub budget: admission::Budget,
    /// The classes that they name.
    pub classes: ClassNames,
}

/// `base` with the fields that `change` sets.
///
/// # Errors
/// Names the field that is out of range.
pub fn apply(base: &v1::Budget, change: &v1::Budget) -> anyhow::Result<Applied> {
    let mut classes = ClassNames::default();
    let base =
        budget_wire::apply(&admission::Budget::default(), base, &mut classes).context("recorded budget")?;
    let budget = budget_wire::apply(&base, change, &mut classes)?;
    Ok(Applied { budget, classes })
}

/// `base` with the fields that `change` sets.
pub fn merged(base: &v1::Budget, change: &v1::Budget) -> v1::Budget {
    let mut fields = set(base);
    fields.extend(set(change));
    serde_json::from_value(Value::Object(fields)).expect("fields of budgets make a budget")
}

/// The fields that a budget sets, by name.
pub fn set(budget: &v1::Budget) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(budget) else { return Map::new() };
    fields.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    fields
}

/// What a change does to `base`, in words: `prefill_max_batch_size = 4 (was 16)`.
pub fn words(base: &v1::Budget, change: &v1::Budget) -> String {
    let was = set(base);
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let one = |(name, value): (&String, &Value)| match was.get(name) {
        Some(before) if before != value => format!("{name} = {} (was {})", plain(value), plain(before)),
        _ => format!("{name} = {}", plain(value)),
    };
    let changes: Vec<_> = set(change).iter().map(one).collect();
    if changes.is_empty() { "the recorded budget".to_owned() } else { changes.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_their_names() {
        let budget =
            parse("prefill_max_batch_size=4, policy=pack,target_itl_ms=12.5,decode_first=true").unwrap();
        let expected = v1::Budget {
            prefill_max_batch_size: Some(4),
            policy: Some("pack".into()),
            target_itl_ms: Some(12.5),
            decode_first: Some(true),
            ..v1::Budget::default()
        };
        assert_eq!(budget, expected);
    }

    #[test]
    fn an_unknown_field_and_a_value_of_the_wrong_kind_are_named() {
        assert!(parse("batch=4").unwrap_err().contains("batch"));
        assert!(parse("max_pending=many").unwrap_err().contains("many"));
        assert!(parse("max_pending").unwrap_err().contains("max_pending"));
        assert!(apply(&v1::Budget::default(), &parse("max_pending=0").unwrap()).is_err());
    }

    #[test]
    fn a_change_says_what_was() {
        let base = parse("prefill_max_batch_size=16,policy=fifo").unwrap();
        let change = parse("prefill_max_batch_size=4,policy=fifo").unwrap();
        assert_eq!(words(&base, &change), "policy = fifo, prefill_max_batch_size = 4 (was 16)");
        assert_eq!(merged(&base, &change), change);
    }
}
