//! Plots of reports: one SVG for each figure, and a page with all of them.

mod axis;
mod chart;
mod page;
mod pictures;

pub use axis::{Axis, Scale};
pub use chart::{Chart, Series, Style};
pub use page::page;
pub use pictures::{Picture, pictures};
