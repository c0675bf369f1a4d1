//! The same request on both sides. Pairs are what makes a small movement visible: both answered the same
//! prompt at the same place of the same load.

use super::{
    blocks::block_length,
    bootstrap::Layout,
    frame::Frame,
    side::{Request, Side},
};

/// Why two sides cannot be compared request by request.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Incomparable {
    /// The loads have other words or seeds.
    #[error("not the same load, so there are no pairs:\n  A: {a}\n  B: {b}")]
    Load {
        /// Of A.
        a: String,
        /// Of B.
        b: String,
    },
    /// One side has more runs.
    #[error("A has {a} runs and B has {b}; runs are compared in pairs, so give as many of each")]
    Runs {
        /// Of A.
        a: usize,
        /// Of B.
        b: usize,
    },
    /// The loads read alike, but prompts, lengths or times differ.
    #[error(
        "the loads read alike ({load}), but {differ} of {of} requests asked something else or at another time"
    )]
    Requests {
        /// In words.
        load: String,
        /// Pairs that differ.
        differ: usize,
        /// Pairs.
        of: usize,
    },
    /// There is nothing to compare.
    #[error("no request has a first token on both sides: failed in A {failed_a}, in B {failed_b}")]
    Nothing {
        /// Failed in A.
        failed_a: usize,
        /// Failed in B.
        failed_b: usize,
    },
}

/// Requests of two sides by run and index.
#[derive(Clone, Debug)]
pub struct Pairs<'a>(Vec<Vec<(&'a Request, &'a Request)>>);

/// Both sides of one time and its columns, ready to be resampled.
#[derive(Clone, Debug)]
pub struct Framed {
    /// A.
    pub a: Frame,
    /// B.
    pub b: Frame,
    /// Runs and blocks.
    pub layout: Layout,
}

impl<'a> Pairs<'a> {
    /// Pairs `a` and `b`, run by run.
    ///
    /// # Errors
    /// When they are not runs of one load.
    pub fn of(a: &'a Side, b: &'a Side) -> Result<Self, Incomparable> {
        if a.load != b.load {
            return Err(Incomparable::Load { a: a.load.clone(), b: b.load.clone() });
        }
        if a.runs.len() != b.runs.len() {
            return Err(Incomparable::Runs { a: a.runs.len(), b: b.runs.len() });
        }
        let run = |(a, b): (&'a std::collections::BTreeMap<usize, Request>, &'a _)| pair(a, b);
        let pairs: Vec<Vec<_>> = a.runs.iter().zip(&b.runs).map(run).collect();
        let all = || pairs.iter().flatten();
        let differ = all().filter(|(a, b)| a.fingerprint != b.fingerprint).count();
        if differ > 0 {
            return Err(Incomparable::Requests { load: a.load.clone(), differ, of: all().count() });
        }
        if !all().any(|(a, b)| a.get("ttft").is_some() && b.get("ttft").is_some()) {
            let failed =
                |side: &Side| side.runs.iter().flat_map(|r| r.values()).filter(|r| !r.completed).count();
            return Err(Incomparable::Nothing { failed_a: failed(a), failed_b: failed(b) });
        }
        Ok(Self(pairs))
    }

    /// Whether a figure is anything but 0 in any request.
    pub fn any_in(&self, name: &str) -> bool {
        let some = |r: &Request| r.get(name).is_some_and(|ms| ms != 0.0);
        self.0.iter().flatten().any(|(a, b)| some(a) || some(b))
    }

    /// The frames of `time` with `columns` beside it, over the pairs in which both sides measured it;
    /// `None` when there is none. What is not measured in a column counts as 0.
    pub fn framed(&self, time: &str, columns: &[&str], seed: u64) -> Option<Framed> {
        let both = |(a, b): &(&'a Request, &'a Request)| Some((a.get(time)?, b.get(time)?, *a, *b));
        let runs: Vec<Vec<_>> = self.0.iter().map(|run| run.iter().filter_map(both).collect()).collect();
        let runs: Vec<Vec<_>> = runs.into_iter().filter(|run: &Vec<_>| !run.is_empty()).collect();
        if runs.is_empty() {
            return None;
        }
        let differences: Vec<Vec<f64>> =
            runs.iter().map(|run| run.iter().map(|(a, b, ..)| b - a).collect()).collect();
        let layout =
            Layout { runs: runs.iter().map(Vec::len).collect(), block: block_length(&differences), seed };
        let all = || runs.iter().flatten();
        let mut a = vec![all().map(|pair| pair.0).collect()];
        let mut b = vec![all().map(|pair| pair.1).collect()];
        for column in columns {
            a.push(all().map(|pair| pair.2.get(column).unwrap_or(0.0)).collect());
            b.push(all().map(|pair| pair.3.get(column).unwrap_or(0.0)).collect());
        }
        Some(Framed { a: Frame::new(a), b: Frame::new(b), layout })
    }
}

fn pair<'a>(
    a: &'a std::collections::BTreeMap<usize, Request>,
    b: &'a std::collections::BTreeMap<usize, Request>,
) -> Vec<(&'a Request, &'a Request)> {
    a.iter().filter_map(|(index, a)| Some((a, b.get(index)?))).collect()
}
