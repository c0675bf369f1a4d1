//! A picture that fills the width it is given: shapes stretch with it, text and lines keep their size, so
//! that it is read on a phone as well as on paper.

use std::fmt::Write as _;

use super::escape;

/// Width of the drawing in its own units; shares of the width are multiplied by it.
const UNITS: f64 = 1000.0;
/// Numbers along an axis, at most.
const TICKS: f64 = 7.0;

/// A picture under construction. `x` is a share of its width, `y` is in pixels from the top.
#[derive(Debug)]
pub struct Plot {
    height: f64,
    shapes: String,
    labels: String,
    title: String,
    gutter: bool,
}

impl Plot {
    /// An empty picture with a title for those who cannot see it.
    pub fn new(height: f64, title: &str) -> Self {
        Self { height, shapes: String::new(), labels: String::new(), title: escape(title), gutter: false }
    }

    /// A filled box from `x0` to `x1` with a text that shows when it is pointed at.
    pub fn bar(&mut self, (x0, x1): (f64, f64), y: f64, height: f64, colour: &str, tip: &str) {
        let (x, width) = (x0 * UNITS, (x1 - x0) * UNITS);
        if width > 0.0 && height > 0.0 {
            let _ = write!(
                self.shapes,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\">\
                 <title>{}</title></rect>",
                escape(tip)
            );
        }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let ((x1, y1), (x2, y2)) = ((from.0 * UNITS, from.1), (to.0 * UNITS, to.1));
        let _ = write!(
            self.shapes,
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\"/>"
        );
    }

    /// A line through points.
    pub fn path(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str, dashes: &str) {
        let points: Vec<String> = points.map(|(x, y)| format!("{:.2},{y:.2}", x * UNITS)).collect();
        let _ = write!(
            self.shapes,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
    }

    /// A dot, ringed when it matters, with a text that shows when it is pointed at.
    pub fn dot(&mut self, (x, y): (f64, f64), colour: &str, ringed: bool, tip: &str) {
        let class = if ringed { "dot ring" } else { "dot" };
        let _ = write!(
            self.labels,
            "<span class=\"{class}\" style=\"left:{:.2}%;top:{y:.1}px;background:{colour}\" title=\"{}\"></span>",
            100.0 * x,
            escape(tip)
        );
    }

    /// Text from `x0` to `x1`, its middle at `y`; what has no room is cut off.
    pub fn text(&mut self, (x0, x1): (f64, f64), y: f64, colour: &str, text: &str) {
        let _ = write!(
            self.labels,
            "<span class=\"in\" style=\"left:{:.2}%;width:{:.2}%;top:{y:.1}px;color:{colour}\">{}</span>",
            100.0 * x0,
            100.0 * (x1 - x0),
            escape(text)
        );
    }

    /// A horizontal axis at the bottom from 0 to `most`, with its numbers and its unit below.
    pub fn axis(&mut self, most: f64, unit: &str) {
        let bottom = self.height;
        self.line((0.0, bottom), (1.0, bottom), "#5c5c5c");
        for (share, number) in ticks(most) {
            self.line((share, bottom - 5.0), (share, bottom), "#5c5c5c");
            let _ =
                write!(self.labels, "<span class=\"x\" style=\"left:{:.2}%\">{number}</span>", 100.0 * share);
        }
        let _ = write!(self.labels, "<span class=\"unit\">{}</span>", escape(unit));
    }

    /// Horizontal rules from 0 at the bottom to `most` at `top`, with their numbers on the left.
    pub fn rules(&mut self, top: f64, most: f64, unit: &str) {
        self.gutter = true;
        for (share, number) in ticks(most) {
            let y = self.height - (self.height - top) * share;
            self.line((0.0, y), (1.0, y), "#d9d9d9");
            let _ = write!(self.labels, "<span class=\"y\" style=\"top:{y:.1}px\">{number}</span>");
        }
        let _ = write!(self.labels, "<span class=\"y unit-y\">{}</span>", escape(unit));
    }

    /// The picture as it stands in the page.
    pub fn finish(self) -> String {
        let Self { height, shapes, labels, title, gutter } = self;
        let class = if gutter { "plot gutter" } else { "plot" };
        format!(
            "<div class=\"{class}\" style=\"height:{height:.0}px\">\
             <svg viewBox=\"0 0 {UNITS} {height:.0}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{title}\">\
             {shapes}</svg>{labels}</div>"
        )
    }
}

/// Where round numbers lie between 0 and `most`, as shares, and how they are written.
fn ticks(most: f64) -> Vec<(f64, String)> {
    let step = nice_step(most / TICKS);
    let count = (most / step + 1e-9) as usize;
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    (0..=count).map(|i| (i as f64 * step / most, format!("{:.decimals$}", i as f64 * step))).collect()
}

/// 1, 2 or 5 times a power of ten, at least `x`.
fn nice_step(x: f64) -> f64 {
    let power = 10_f64.powf(x.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&step| step >= x).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_few_and_within_the_picture() {
        for most in [0.003, 0.7, 1.0, 9.9, 477.15, 4858.0, 1e7] {
            let ticks = ticks(most);
            assert!((2..=8).contains(&ticks.len()), "{most}: {ticks:?}");
            assert!(ticks.iter().all(|(share, _)| (0.0..=1.0 + 1e-9).contains(share)), "{most}: {ticks:?}");
        }
        let words = |most| ticks(most).into_iter().map(|t| t.1).collect::<Vec<_>>().join(" ");
        assert_eq!(words(477.15), "0 100 200 300 400");
        assert_eq!(words(0.9), "0.0 0.2 0.4 0.6 0.8");
    }
}
