//! The points of a sweep: every combination of values, those of one budget by growing load.

use super::axis::{Axis, Setting};

/// Axes, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    budgets: Vec<Axis>,
    load: Option<Axis>,
}

impl Grid {
    /// The grid over `axes`.
    ///
    /// # Errors
    /// When two axes vary the load, or one flag twice.
    pub fn new(axes: Vec<Axis>) -> Result<Self, String> {
        for (i, axis) in axes.iter().enumerate() {
            if axes[..i].iter().any(|other| other.flag == axis.flag) {
                return Err(format!("{} is varied twice", axis.flag));
            }
        }
        let (load, budgets): (Vec<_>, Vec<_>) = axes.into_iter().partition(Axis::is_load);
        if load.len() > 1 {
            return Err("vary request-rate or max-concurrency, not both: one load at a time grows".to_owned());
        }
        Ok(Self { budgets, load: load.into_iter().next() })
    }

    /// Flags that vary, in the order of a point's settings.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.budgets.iter().chain(&self.load).map(|axis| axis.flag.as_str())
    }

    /// One list of points per budget, in the order in which they are measured.
    pub fn ladders(&self) -> Vec<Vec<Vec<Setting>>> {
        let mut budgets: Vec<Vec<Setting>> = vec![Vec::new()];
        for axis in &self.budgets {
            let longer = |settings: &Vec<Setting>| {
                let settings = settings.clone();
                axis.values.iter().map(move |value| with(&settings, axis, value))
            };
            budgets = budgets.iter().flat_map(longer).collect();
        }
        let rungs = |budget: Vec<Setting>| match &self.load {
            Some(axis) => axis.values.iter().map(|value| with(&budget, axis, value)).collect(),
            None => vec![budget],
        };
        budgets.into_iter().map(rungs).collect()
    }
}

fn with(settings: &[Setting], axis: &Axis, value: &str) -> Vec<Setting> {
    let one = Setting { flag: axis.flag.clone(), value: value.to_owned() };
    settings.iter().cloned().chain([one]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(axes: &[&str]) -> Result<Grid, String> {
        Grid::new(axes.iter().map(|a| a.parse().unwrap()).collect())
    }

    #[test]
    fn every_combination_is_a_point_and_the_load_grows_within_a_budget() {
        let grid = grid(&["request-rate=20,10", "max-batch-size=8,16", "policy=fifo,pack"]).unwrap();
        let ladders = grid.ladders();
        assert_eq!(ladders.len(), 4);
        let words = |point: &[Setting]| point.iter().map(|s| s.value.as_str()).collect::<Vec<_>>().join(" ");
        assert_eq!(words(&ladders[1][0]), "8 pack 10");
        assert_eq!(words(&ladders[1][1]), "8 pack 20");
        assert_eq!(
            grid.flags().collect::<Vec<_>>(),
            ["max-batch-size", "prefill-admission-policy", "request-rate"]
        );
    }

    #[test]
    fn limits_alone_are_points_of_their_own() {
        let ladders = grid(&["max-active-requests=16,32,64"]).unwrap().ladders();
        assert_eq!(ladders.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn two_loads_or_one_flag_twice_are_refused() {
        assert!(grid(&["request-rate=1", "max-concurrency=2"]).unwrap_err().contains("not both"));
        assert!(grid(&["max-pending=1", "max-pending=2"]).unwrap_err().contains("varied twice"));
    }
}
