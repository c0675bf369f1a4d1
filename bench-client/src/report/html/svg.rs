//! Shapes, colours and escaping.

use std::fmt::Write as _;

use firstlight_proto::cause;

use crate::join::part_names;

/// Okabe and Ito's colours (2008) and three of Tol's, in the order of the parts of TTFT.
const PART_COLOURS: [&str; 10] = [
    "#999999", "#56b4e9", "#f0e442", "#d55e00", "#cc79a7", "#e69f00", "#0072b2", "#009e73", "#332288",
    "#000000",
];
/// In the order of the causes.
const CAUSE_COLOURS: [&str; 11] = [
    "#d55e00", "#0072b2", "#f0e442", "#009e73", "#cc79a7", "#e69f00", "#000000", "#56b4e9", "#999999",
    "#882255", "#332288",
];

/// Colour of the `index`-th part.
pub fn part_colour(index: usize) -> &'static str {
    PART_COLOURS[index % PART_COLOURS.len()]
}

/// Colour of a cause, by name.
pub fn cause_colour(name: &str) -> &'static str {
    let index = cause::ALL.iter().position(|c| c.label() == name).unwrap_or(0);
    CAUSE_COLOURS[index % CAUSE_COLOURS.len()]
}

/// What the colours of the parts mean.
pub fn parts_key() -> String {
    key(part_names().into_iter().enumerate().map(|(i, name)| (name, part_colour(i))))
}

/// What colours mean.
pub fn key<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entries: String = entries
        .map(|(name, colour)| format!("<li><i style=\"background:{colour}\"></i>{}</li>", escape(name)))
        .collect();
    format!("<ul class=\"key\">{entries}</ul>")
}

/// Text that is safe in HTML and in attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A picture under construction; lengths are in its own units.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    shapes: String,
    title: String,
}

impl Svg {
    /// An empty picture with a title for those who cannot see it.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, shapes: String::new(), title: escape(title) }
    }

    /// A filled box with a text that shows when it is pointed at.
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str, tip: &str) {
        if width > 0.0 && height > 0.0 {
            let _ = write!(
                self.shapes,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\">\
                 <title>{}</title></rect>",
                escape(tip)
            );
        }
    }

    /// Text that starts at, is centred on or ends at `x` (`start`, `middle`, `end`).
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let text = escape(text);
        let _ = write!(self.shapes, "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(
            self.shapes,
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{colour}\"/>"
        );
    }

    /// A line through points.
    pub fn path(&mut self, points: impl Iterator<Item = (f64, f64)>, colour: &str, dashes: &str) {
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
        let _ = write!(
            self.shapes,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
    }

    /// A horizontal axis from 0 to `most` ms, between `x` and `x + width`, with its numbers below `y`.
    pub fn axis(&mut self, x: f64, y: f64, width: f64, most: f64) {
        self.line((x, y), (x + width, y), "#5c5c5c");
        let step = nice_step(most / 6.0);
        for i in 0..=(most / step) as usize {
            let (at, value) = (x + width * i as f64 * step / most, i as f64 * step);
            self.line((at, y), (at, y + 4.0), "#5c5c5c");
            self.text(at, y + 17.0, "middle", &format!("{value}"));
        }
        self.text(x + width, y + 32.0, "end", "ms");
    }

    /// The picture as it stands in the page.
    pub fn finish(self) -> String {
        let Self { width, height, shapes, title } = self;
        format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">{shapes}</svg>")
    }
}

/// 1, 2 or 5 times a power of ten, at least `x`.
fn nice_step(x: f64) -> f64 {
    let power = 10_f64.powf(x.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&step| step >= x).unwrap_or(10.0 * power)
}
