//! The sizes that decode forwards are padded to: one captured graph each.

/// 1, 2, 4, 8, then steps of 8 up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets(Vec<usize>);

impl Buckets {
    /// Up to `limit` rows, at least 1; the limit itself is a bucket.
    pub fn up_to(limit: usize) -> Self {
        let limit = limit.max(1);
        let steps = [1, 2, 4].into_iter().chain((8..limit).step_by(8));
        Self(steps.filter(|&rows| rows < limit).chain([limit]).collect())
    }

    /// The sizes, ascending.
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    /// The largest.
    pub fn largest(&self) -> usize {
        self.0[self.0.len() - 1]
    }

    /// The smallest that holds `rows`.
    ///
    /// # Panics
    /// When none does.
    pub fn of(&self, rows: usize) -> usize {
        self.0[self.0.partition_point(|&size| size < rows)]
    }

    /// How many rows are executed for `rows` of them, padding included; in several forwards where one cannot hold
    /// them.
    pub fn padded(&self, rows: usize) -> usize {
        let rest = rows % self.largest();
        rows - rest + if rest > 0 { self.of(rest) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_up_to_eight_and_then_step_by_eight() {
        assert_eq!(Buckets::up_to(64).sizes(), [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]);
        assert_eq!(Buckets::up_to(1).sizes(), [1]);
        assert_eq!(Buckets::up_to(5).sizes(), [1, 2, 4, 5]);
        assert_eq!(Buckets::up_to(20).sizes(), [1, 2, 4, 8, 16, 20]);
        assert_eq!(Buckets::up_to(0).sizes(), [1]);
    }

    #[test]
    fn rows_go_into_the_smallest_bucket_that_holds_them() {
        let buckets = Buckets::up_to(256);
        for rows in 1..=256 {
            let bucket = buckets.of(rows);
            let smaller = buckets.sizes().iter().rfind(|&&size| size < bucket).copied().unwrap_or_default();
            assert!(bucket >= rows && smaller < rows, "{rows} rows in {bucket}");
            assert!(
                bucket < 2 * rows.max(1) || bucket - rows < 8,
                "{rows} rows in {bucket}: too much padding"
            );
        }
    }

    #[test]
    fn what_one_forward_cannot_hold_is_padded_by_its_last() {
        let buckets = Buckets::up_to(64);
        assert_eq!([64, 65, 67, 130].map(|rows| buckets.padded(rows)), [64, 65, 68, 130]);
    }
}
