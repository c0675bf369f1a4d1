//! Distributions of token counts, and made-up requests drawn from them.

use std::{fmt, str::FromStr};

use super::{Input, Row};
use crate::load::random::Random;

/// A distribution of token counts: `512`, `100..200` (uniform) or `lognormal:MEDIAN,SIGMA`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    /// Always this many.
    Fixed(u32),
    /// Evenly between the two, both included.
    Uniform(u32, u32),
    /// The logarithm is normal around that of the median.
    Lognormal {
        /// Half of the counts are below.
        median: f64,
        /// Deviation of the logarithm.
        sigma: f64,
    },
}

impl Lengths {
    /// A count, ≥ 1.
    pub fn draw(&self, random: &mut Random) -> u32 {
        match *self {
            Self::Fixed(n) => n,
            Self::Uniform(low, high) => random.between(u64::from(low), u64::from(high)) as u32,
            Self::Lognormal { median, sigma } => {
                (median * (sigma * random.normal()).exp()).round().clamp(1.0, f64::from(u32::MAX)) as u32
            }
        }
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = || format!("{s:?} is no length; write 512, 100..200 or lognormal:MEDIAN,SIGMA");
        let count = |x: &str| x.trim().parse::<u32>().ok().filter(|&n| n > 0).ok_or_else(wrong);
        if let Some(rest) = s.strip_prefix("lognormal:") {
            let (median, sigma) = rest.split_once(',').ok_or_else(wrong)?;
            let number = |x: &str| x.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
            return Ok(Self::Lognormal {
                median: number(median).ok_or_else(wrong)?,
                sigma: number(sigma).ok_or_else(wrong)?,
            });
        }
        match s.split_once("..") {
            Some((low, high)) => {
                let (low, high) = (count(low)?, count(high)?);
                if low <= high { Ok(Self::Uniform(low, high)) } else { Err(wrong()) }
            }
            None => Ok(Self::Fixed(count(s)?)),
        }
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n}"),
            Self::Uniform(low, high) => write!(f, "{low}..{high}"),
            Self::Lognormal { median, sigma } => write!(f, "lognormal:{median},{sigma}"),
        }
    }
}

/// Made-up requests of random lengths. `prefixes` groups start alike for `prefix_tokens` tokens.
pub fn made_up(
    count: usize,
    input: Lengths,
    output: Option<Lengths>,
    prefixes: Option<(u32, usize)>,
    seed: u64,
) -> Vec<Row> {
    let mut random = Random::new(seed);
    let row = |i: usize| {
        let tokens = input.draw(&mut random) as usize;
        let input = match prefixes {
            None => Input::Tokens(tokens),
            Some((groups, prefix)) => {
                // Blocks as long as the prefix: the first id is the group's, all later ones are unique.
                let group = random.between(0, u64::from(groups.max(1)) - 1);
                let unique = u64::from(groups) + i as u64 * (1 << 20);
                let ids =
                    std::iter::once(group).chain((1..=tokens.div_ceil(prefix) as u64).map(|k| unique + k));
                Input::Blocks { tokens: prefix + tokens, ids: ids.collect(), block: prefix }
            }
        };
        Row { output_tokens: output.map(|o| o.draw(&mut random)), ..Row::new(input) }
    };
    (0..count).map(row).collect()
}
