//! The reports of a run: lines as it proceeds, a summary at the end, and files for other programs.

mod json;
mod junit;
mod lines;
mod markdown;
mod summary;

pub use json::json;
pub use junit::junit;
pub use lines::Lines;
pub use markdown::markdown;
pub use summary::{closing_line, summary};
