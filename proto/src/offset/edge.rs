//! One edge of the interval that holds the offset: what bounds it from above, or from below, over time.
//!
//! An observation holds at its own moment, and the more loosely the further away from it. One that says less at its own
//! moment than another does says less everywhere, and is not kept. So of those that are kept the nearest on either side
//! of a moment says the most of it, and what is known of a moment is found without looking at all of them.

use std::collections::VecDeque;

use super::rate::Rate;

/// Most observations kept.
pub(super) const MOST: usize = 4096;
/// Least time between observations once there were too many; doubled whenever that is not enough.
const FIRST_SPACING_NS: i64 = 10_000_000;

/// Which edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The offset is at most what is observed.
    Upper,
    /// The offset is at least what is observed.
    Lower,
}

impl Side {
    /// Whether a bound says more than another.
    pub fn tighter(self, one: i64, other: i64) -> bool {
        match self {
            Self::Upper => one < other,
            Self::Lower => one > other,
        }
    }

    /// What an observation says of another moment.
    fn reach(self, point: Point, at: i64, rate: Rate) -> i64 {
        match self {
            Self::Upper => point.value + rate.most(at - point.at),
            Self::Lower => point.value + rate.least(at - point.at),
        }
    }
}

/// What one observation says of the offset when our clock read `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub at: i64,
    pub value: i64,
}

/// The observations of one edge that no other makes superfluous, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    side: Side,
    points: VecDeque<Point>,
    spacing_ns: i64,
}

impl Edge {
    /// Nothing is known.
    pub fn new(side: Side) -> Self {
        Self { side, points: VecDeque::new(), spacing_ns: FIRST_SPACING_NS }
    }

    /// What is known of a moment, and from which observation.
    pub fn at(&self, at: i64, rate: Rate) -> Option<(i64, Point)> {
        let next = self.points.partition_point(|point| point.at <= at);
        let nearest = next.checked_sub(1).into_iter().chain([next]);
        let bounds = nearest.filter_map(|i| self.points.get(i)).map(|p| (self.side.reach(*p, at, rate), *p));
        bounds.reduce(|one, other| if self.side.tighter(other.0, one.0) { other } else { one })
    }

    /// Takes an observation in, unless it says nothing new.
    pub fn insert(&mut self, point: Point, rate: Rate) {
        if self.at(point.at, rate).is_some_and(|(known, _)| !self.side.tighter(point.value, known)) {
            return;
        }
        let place = self.points.partition_point(|other| other.at < point.at);
        let superfluous =
            |other: &&Point| !self.side.tighter(other.value, self.side.reach(point, other.at, rate));
        let before = self.points.range(..place).rev().take_while(superfluous).count();
        let after = self.points.range(place..).take_while(superfluous).count();
        self.points.drain(place - before..place + after);
        self.points.insert(place - before, point);
        if self.points.len() > MOST {
            self.thin_out();
        }
    }

    /// Forgets what is older than `oldest`.
    pub fn forget_before(&mut self, oldest: i64) {
        while self.points.front().is_some_and(|point| point.at < oldest) {
            self.points.pop_front();
        }
    }

    /// Forgets all but these.
    pub fn keep_only(&mut self, point: Option<Point>) {
        self.points.clear();
        self.points.extend(point);
    }

    /// When the newest observation was.
    pub fn newest(&self) -> Option<i64> {
        self.points.back().map(|point| point.at)
    }

    /// Observations kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Leaves out observations that are close to others; the newest stays.
    fn thin_out(&mut self) {
        let newest = self.newest();
        loop {
            let mut last = i64::MIN;
            self.points.retain(|point| {
                let keep = point.at.saturating_sub(last) >= self.spacing_ns || Some(point.at) == newest;
                if keep {
                    last = point.at;
                }
                keep
            });
            if self.points.len() <= MOST / 2 {
                return;
            }
            self.spacing_ns *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn upper(points: &[(i64, i64)]) -> Edge {
        let mut edge = Edge::new(Side::Upper);
        for (at, value) in points {
            edge.insert(Point { at: *at, value: *value }, Rate::ASSUMED);
        }
        edge
    }

    #[test]
    fn an_observation_that_another_makes_superfluous_is_not_kept() {
        // 500 ppm of 10 ms are 5 µs.
        assert_eq!(upper(&[(0, 100_000), (10 * MS, 105_001)]).len(), 1, "the first says 105 µs already");
        assert_eq!(upper(&[(0, 100_000), (10 * MS, 104_999)]).len(), 2);
        assert_eq!(
            upper(&[(0, 100_000), (10 * MS, 94_999)]).len(),
            1,
            "the second says 99.999 µs of the first"
        );
        assert_eq!(upper(&[(10 * MS, 94_999), (0, 100_000)]).len(), 1, "in whatever order they come");
    }

    #[test]
    fn what_is_known_of_a_moment_is_the_most_that_any_observation_says() {
        let points: Vec<(i64, i64)> = (0..500).map(|i| (i * 7 * MS, i * i * 7_919 % 40_000)).collect();
        let edge = upper(&points);
        for at in (-100..4_000).map(|ms| ms * MS) {
            let said = |(of, value): &(i64, i64)| {
                Side::Upper.reach(Point { at: *of, value: *value }, at, Rate::ASSUMED)
            };
            let most = points.iter().map(said).min().unwrap();
            assert_eq!(edge.at(at, Rate::ASSUMED).unwrap().0, most, "at {at}");
        }
    }

    #[test]
    fn observations_without_number_are_thinned_out_evenly() {
        let mut edge = Edge::new(Side::Lower);
        for i in 0..100_000 {
            edge.insert(Point { at: i * 100 * MS, value: 0 }, Rate::ASSUMED);
            assert!(edge.len() <= MOST);
        }
        let gaps = edge.points.iter().zip(edge.points.iter().skip(1)).map(|(a, b)| b.at - a.at);
        assert!(gaps.max().unwrap() <= 10_000 * 1_000 * MS / (MOST as i64 / 8));
        assert_eq!(edge.newest(), Some(99_999 * 100 * MS));
    }
}
