//! Tables for text output, in one style.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

/// Makes an empty table. The first column is for text, the others are for figures.
pub fn new(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header(header);
    for column in 1..header.len() {
        align(&mut table, column, CellAlignment::Right);
    }
    table
}

/// Aligns one column.
pub fn align(table: &mut Table, column: usize, alignment: CellAlignment) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(alignment);
    }
}

/// Formats a figure with three significant digits, or all digits before the point. Formats an
/// infinity or NaN as a dash.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let decimals = match value.abs() {
        small if small < 1.0 => 3,
        small if small < 10.0 => 2,
        small if small < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats a figure as [`figure`] does, and `None` as a dash.
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(figure(0.0571), "0.057");
        assert_eq!(figure(1.234), "1.23");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(12345.6), "12346");
        assert_eq!(optional(None), "-");
    }
}
