//! A grid over limits of admission or over the load, measured live. Pure, except for the file of points.
//!
//! - [`axis`]: one flag and its values
//! - [`grid`]: the points, in the order in which they are measured
//! - [`point`]: a measured point
//! - [`ladder`]: points of growing load: where it saturates, and when more load is hopeless
//! - [`log`]: the file of points that a sweep goes on from
//! - [`text`]: the table, for people and as CSV
//! - [`html`]: the table and its picture, as one file

pub mod axis;
pub mod grid;
pub mod html;
pub mod ladder;
pub mod log;
pub mod point;
pub mod text;

pub use axis::{Axis, Setting};
pub use grid::Grid;
pub use ladder::{Ladder, Saturation};
pub use point::Point;
