//! Points of one budget by growing load: where goodput saturates, and when more load is hopeless. Pure.

use super::{Point, axis::Setting};

/// A goodput below this share of the best at a lower load will not recover at a higher one.
const COLLAPSED: f64 = 0.5;
/// Distance from the straight line, as a share of the range, from which a bend counts as a knee.
const BEND: f64 = 0.15;

/// Points of one budget, by growing load.
#[derive(Clone, Copy, Debug)]
pub struct Ladder<'a>(pub &'a [&'a Point]);

/// Where goodput stops growing with the load.
#[derive(Clone, Debug, PartialEq)]
pub enum Saturation {
    /// At this load: beyond it goodput bends away from the load, or falls.
    At {
        /// The load.
        load: Setting,
        /// Goodput there, requests per second.
        goodput: f64,
    },
    /// Goodput still grows at the largest load.
    NotReached {
        /// The largest load.
        load: Setting,
        /// Goodput there, requests per second.
        goodput: f64,
    },
}

impl Ladder<'_> {
    /// Why no higher load needs to be measured; `None` while it may still bring more.
    pub fn hopeless(&self) -> Option<String> {
        let last = self.0.last()?;
        let load = last.load()?;
        if let Some(why) = &last.results.run.given_up {
            return Some(format!("{load} was {why}"));
        }
        let best = self.0.iter().max_by(|a, b| a.goodput().total_cmp(&b.goodput()))?;
        (last.goodput() < COLLAPSED * best.goodput()).then(|| {
            format!(
                "goodput at {load} is {:.2} requests/s, less than half of {:.2} at {}",
                last.goodput(),
                best.goodput(),
                best.load().map(ToString::to_string).unwrap_or_default()
            )
        })
    }

    /// The knee of goodput over load: the point farthest above the straight line from the first point to
    /// the best one (the rule of Satopää and others, 2011), or the best one where there is no such bend.
    /// `None` when the load does not vary.
    pub fn saturation(&self) -> Option<Saturation> {
        let places: Vec<(f64, f64, &Setting)> = self
            .0
            .iter()
            .filter_map(|p| p.load().and_then(|load| Some((load.number()?, p.goodput(), load))))
            .collect();
        let (top, best) =
            places.iter().enumerate().max_by(|(i, a), (j, b)| a.1.total_cmp(&b.1).then(j.cmp(i)))?;
        let first = places.first()?;
        let (width, height) = (best.0 - first.0, best.1 - first.1);
        let above = |p: &(f64, f64, &Setting)| (p.1 - first.1) / height - (p.0 - first.0) / width;
        let knee = places[..=top].iter().max_by(|a, b| above(a).total_cmp(&above(b)));
        let at = |p: &(f64, f64, &Setting)| Saturation::At { load: p.2.clone(), goodput: p.1 };
        match knee.filter(|p| width > 0.0 && height > 0.0 && above(p) > BEND) {
            Some(knee) => Some(at(knee)),
            None if top + 1 < places.len() || places.len() == 1 && self.hopeless().is_some() => {
                Some(at(best))
            }
            None => Some(Saturation::NotReached { load: best.2.clone(), goodput: best.1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Results;

    fn points(goodput: &[(u32, f64)]) -> Vec<Point> {
        let point = |&(rate, per_s): &(u32, f64)| {
            let mut results = Results::default();
            results.throughput.requests_per_s = Some(per_s);
            let load = Setting { flag: "request-rate".into(), value: rate.to_string() };
            Point { sweep: String::new(), settings: vec![load], results }
        };
        goodput.iter().map(point).collect()
    }

    fn saturation(goodput: &[(u32, f64)]) -> (bool, String) {
        let points = points(goodput);
        match Ladder(&points.iter().collect::<Vec<_>>()).saturation().unwrap() {
            Saturation::At { load, .. } => (true, load.value),
            Saturation::NotReached { load, .. } => (false, load.value),
        }
    }

    #[test]
    fn the_knee_is_where_goodput_bends_away_from_the_load() {
        assert_eq!(saturation(&[(5, 5.0), (10, 10.0), (20, 20.0), (40, 22.0)]), (true, "20".into()));
        assert_eq!(saturation(&[(5, 5.0), (10, 10.0), (20, 20.0), (40, 3.0)]), (true, "20".into()));
        assert_eq!(saturation(&[(5, 5.0), (10, 2.0)]), (true, "5".into()));
    }

    #[test]
    fn goodput_that_still_grows_is_not_saturated() {
        assert_eq!(saturation(&[(5, 5.0), (10, 10.0), (20, 19.8)]), (false, "20".into()));
        assert_eq!(saturation(&[(5, 5.0)]), (false, "5".into()));
    }

    #[test]
    fn a_collapse_or_a_point_given_up_is_hopeless() {
        let mut points = points(&[(10, 10.0), (20, 18.0), (40, 4.0)]);
        let hopeless = |points: &[Point]| Ladder(&points.iter().collect::<Vec<_>>()).hopeless();
        assert_eq!(hopeless(&points[..2]), None);
        let why = hopeless(&points).unwrap();
        assert!(why.contains("request-rate 40 is 4.00") && why.contains("18.00 at request-rate 20"), "{why}");
        points[1].results.run.given_up = Some("given up when 3 of 4 requests had failed".into());
        assert!(hopeless(&points[..2]).unwrap().contains("request-rate 20 was given up when 3 of 4"));
    }
}
