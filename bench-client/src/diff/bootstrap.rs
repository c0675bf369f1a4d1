//! A paired block bootstrap over requests and runs. Both sides are resampled alike: a request goes with
//! its pair. Blocks of neighbouring requests go together, since a queue makes them alike; whole runs go
//! together, since one run differs from the next.

use super::{frame::Frame, quantile::Statistic};
use crate::{load::random::Random, report::stats::student_t_95};

/// Resamples per kind.
const REPLICATES: usize = 1000;

/// Pairs of runs, one after the other, and how far neighbours depend on each other.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Pairs of each run.
    pub runs: Vec<usize>,
    /// Pairs per block.
    pub block: usize,
    /// Of the resampling.
    pub seed: u64,
}

/// A movement and how sure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// Before.
    pub a: f64,
    /// After.
    pub b: f64,
    /// Half of the 95 % interval of `b − a`.
    pub half_width: f64,
}

/// How much each column of the frames moved, by statistic and column.
pub fn moved(a: &Frame, b: &Frame, statistics: &[Statistic], layout: &Layout) -> Vec<Vec<Moved>> {
    let all = vec![1; layout.runs.iter().sum()];
    let blocks = spread(a, b, statistics, |random| layout.some_blocks(random), layout.seed);
    let runs = match layout.runs.len() {
        1 => blocks.iter().map(|columns| vec![0.0; columns.len()]).collect(),
        _ => spread(a, b, statistics, |random| layout.some_runs(random), layout.seed ^ 1),
    };
    let estimate = |s: usize| {
        let (before, after) = (a.at(&statistics[s], &all), b.at(&statistics[s], &all));
        let each = before.into_iter().zip(after).enumerate();
        each.map(|(column, (a, b))| {
            let half_width = layout.half_width(blocks[s][column], runs[s][column]);
            Moved { a, b, half_width }
        })
        .collect()
    };
    (0..statistics.len()).map(estimate).collect()
}

/// Variance of the movement over resamples, by statistic and column.
fn spread(
    a: &Frame,
    b: &Frame,
    statistics: &[Statistic],
    mut resample: impl FnMut(&mut Random) -> Vec<u32>,
    seed: u64,
) -> Vec<Vec<f64>> {
    let mut random = Random::new(seed);
    let mut moments: Vec<Vec<(f64, f64)>> = Vec::new();
    for _ in 0..REPLICATES {
        let counts = resample(&mut random);
        for (s, statistic) in statistics.iter().enumerate() {
            let (before, after) = (a.at(statistic, &counts), b.at(statistic, &counts));
            if moments.len() <= s {
                moments.push(vec![(0.0, 0.0); before.len()]);
            }
            for ((sum, squares), (x, y)) in moments[s].iter_mut().zip(before.into_iter().zip(after)) {
                *sum += y - x;
                *squares += (y - x) * (y - x);
            }
        }
    }
    let n = REPLICATES as f64;
    let variance = |(sum, squares): (f64, f64)| (squares / n - (sum / n).powi(2)).max(0.0);
    moments.into_iter().map(|columns| columns.into_iter().map(variance).collect()).collect()
}

impl Layout {
    /// Every run once; within it, blocks drawn with replacement, counted round.
    fn some_blocks(&self, random: &mut Random) -> Vec<u32> {
        let mut counts = vec![0; self.runs.iter().sum()];
        let mut first = 0;
        for &n in &self.runs {
            let mut drawn = 0;
            while drawn < n {
                let start = random.between(0, n as u64 - 1) as usize;
                for k in 0..self.block.min(n - drawn) {
                    counts[first + (start + k) % n] += 1;
                }
                drawn += self.block;
            }
            first += n;
        }
        counts
    }

    /// Runs drawn with replacement, each whole.
    fn some_runs(&self, random: &mut Random) -> Vec<u32> {
        let mut times = vec![0_u32; self.runs.len()];
        for _ in 0..self.runs.len() {
            times[random.between(0, self.runs.len() as u64 - 1) as usize] += 1;
        }
        let counts = self.runs.iter().zip(times).flat_map(|(&n, times)| std::iter::repeat_n(times, n));
        counts.collect()
    }

    /// Half of the interval from the variance over blocks and the variance over runs: both count, as when
    /// runs are drawn and then blocks within them, since few runs say little about how runs differ. Degrees
    /// of freedom are pooled after Satterthwaite (1946).
    fn half_width(&self, over_blocks: f64, over_runs: f64) -> f64 {
        let blocks: usize = self.runs.iter().map(|n| n.div_ceil(self.block)).sum();
        let (blocks, runs) = (blocks.max(2) as f64, self.runs.len() as f64);
        let over_blocks = over_blocks * blocks / (blocks - 1.0);
        let over_runs = if runs > 1.0 { over_runs * runs / (runs - 1.0) } else { 0.0 };
        let variance = over_blocks + over_runs;
        if variance <= 0.0 {
            return 0.0;
        }
        let (within, between) = (over_blocks / variance, over_runs / variance);
        let freedom = 1.0 / (between.powi(2) / (runs - 1.0).max(1.0) + within.powi(2) / (blocks - 1.0));
        student_t_95(freedom) * variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, n: usize) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..n).map(|_| 10.0 + random.normal()).collect()
    }

    #[test]
    fn the_interval_of_independent_pairs_is_the_textbook_one() {
        let (a, b) = (noise(1, 400), noise(2, 400));
        let layout = Layout { runs: vec![400], block: 1, seed: 0 };
        let frames = (Frame::new(vec![a]), Frame::new(vec![b]));
        let moved = moved(&frames.0, &frames.1, &[Statistic::Mean], &layout)[0][0];
        let textbook = 1.96 * (2.0_f64 / 400.0).sqrt();
        assert!((moved.half_width / textbook - 1.0).abs() < 0.15, "{moved:?}, {textbook}");
    }

    #[test]
    fn noise_that_both_sides_share_does_not_count() {
        let a = noise(3, 200);
        let b = a.iter().map(|x| x + 5.0).collect();
        let layout = Layout { runs: vec![200], block: 14, seed: 0 };
        let moved = moved(&Frame::new(vec![a]), &Frame::new(vec![b]), &[Statistic::Mean], &layout)[0][0];
        assert!((moved.b - moved.a - 5.0).abs() < 1e-9 && moved.half_width < 1e-6, "{moved:?}");
    }

    #[test]
    fn runs_that_differ_as_a_whole_widen_the_interval() {
        let a = noise(4, 400);
        let shift = |i: usize| [3.0, -3.0, 2.0, -2.0][i / 100];
        let b = noise(5, 400).into_iter().enumerate().map(|(i, x)| x + shift(i)).collect();
        let (a, b) = (Frame::new(vec![a]), Frame::new(vec![b]));
        let half =
            |runs| moved(&a, &b, &[Statistic::Mean], &Layout { runs, block: 10, seed: 0 })[0][0].half_width;
        assert!(half(vec![100; 4]) > 3.0, "four runs that differ by ± 3 say little");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let (a, b) = (Frame::new(vec![noise(6, 50)]), Frame::new(vec![noise(7, 50)]));
        let once = |seed| {
            moved(&a, &b, &[Statistic::quantile(0.99, 50)], &Layout { runs: vec![50], block: 7, seed })
        };
        assert_eq!(once(3), once(3));
        assert_ne!(once(3), once(4));
    }
}
