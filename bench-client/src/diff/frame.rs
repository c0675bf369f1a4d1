//! The figures that move together: a time, and the columns it is made of or that go with it. A statistic
//! orders requests by the time and takes the weighted mean of every column, so that columns that add up
//! to the time in each request add up in each statistic.

use super::quantile::Statistic;

/// One side of some pairs.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Pairs, shortest time first.
    order: Vec<usize>,
    /// By column, then by pair; the first column is the time.
    columns: Vec<Vec<f64>>,
}

impl Frame {
    /// `columns` by column, then by pair; the first is the time that orders.
    pub fn new(columns: Vec<Vec<f64>>) -> Self {
        let time = &columns[0];
        let mut order: Vec<usize> = (0..time.len()).collect();
        order.sort_by(|&a, &b| time[a].total_cmp(&time[b]));
        Self { order, columns }
    }

    /// The statistic of every column, when pair `i` counts `counts[i]` times.
    pub fn at(&self, statistic: &Statistic, counts: &[u32]) -> Vec<f64> {
        let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
        let (mut out, mut seen) = (vec![0.0; self.columns.len()], 0_u64);
        for &pair in self.order.iter().filter(|&&pair| counts[pair] > 0) {
            let from = seen as f64 / total as f64;
            seen += u64::from(counts[pair]);
            let weight = statistic.weight(from, seen as f64 / total as f64);
            if weight > 1e-12 {
                for (sum, column) in out.iter_mut().zip(&self.columns) {
                    *sum += weight * column[pair];
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_at_every_statistic() {
        let (wait, prefill) = (vec![1.0, 50.0, 3.0, 9.0], vec![5.0, 6.0, 5.0, 4.0]);
        let ttft = wait.iter().zip(&prefill).map(|(a, b)| a + b).collect();
        let frame = Frame::new(vec![ttft, wait, prefill]);
        for statistic in [Statistic::Mean, Statistic::quantile(0.5, 4), Statistic::quantile(0.99, 4)] {
            let at = frame.at(&statistic, &[1, 2, 0, 1]);
            assert!((at[0] - at[1] - at[2]).abs() < 1e-9, "{statistic:?}: {at:?}");
        }
        assert_eq!(frame.at(&Statistic::Mean, &[1; 4])[0], 83.0 / 4.0);
    }
}
