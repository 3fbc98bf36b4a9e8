//! A chart with two axes, as SVG.

use std::fmt::Write as _;

use super::axis::Axis;
use crate::output::markup::escaped;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The line below the title.
    pub subtitle: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name, which is drawn to the right of the line.
    pub name: String,
    /// The style.
    pub style: Style,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Confidence interval of each point; empty for a line without intervals.
    pub band: Vec<(f64, f64)>,
}

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A measurement, with the colour of this number.
    Measured(usize),
    /// A limit of the machine, with the dashes of this number.
    Limit(usize),
}

const HEIGHT: f64 = 480.0;
const LEFT: f64 = 84.0;
/// Length of the horizontal axis.
const PLOT_WIDTH: f64 = 590.0;
const RIGHT: f64 = LEFT + PLOT_WIDTH;
/// Upper bound of the mean width of a character of a name.
const CHARACTER_WIDTH: f64 = 7.2;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 56.0;
/// Colours that colour-blind readers can distinguish.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b4b9a",
];
const GREY: &str = "#8a8a8a";
const FAINT: &str = "#f3f3f3";
const DASHES: [&str; 6] = ["7 4", "2 3", "10 3 2 3", "4 2", "14 4", "5 2 1 2"];
/// Half of the length of a line for a limit with a single size.
const HALF_SINGLE_LINE: f64 = 12.0;
/// Least vertical distance between two names.
const NAME_DISTANCE: f64 = 15.0;

impl Chart {
    /// The chart as a self-contained SVG.
    pub fn svg(&self) -> String {
        let width = self.width();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {HEIGHT}\" \
             width=\"{width:.0}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{width:.0}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
        );
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{}</text>\n\
             <text x=\"{LEFT}\" y=\"42\" fill=\"#555555\">{}</text>",
            escaped(&self.title),
            escaped(&self.subtitle)
        );
        self.draw_grid(&mut svg);
        for series in &self.series {
            self.draw_band(&mut svg, series);
        }
        for series in &self.series {
            self.draw_line(&mut svg, series);
        }
        self.draw_names(&mut svg);
        svg + "</svg>\n"
    }

    /// Width that fits the names beside the lines.
    fn width(&self) -> f64 {
        let names = self.series.iter().map(|series| series.name.chars().count());
        let longest = names.max().unwrap_or_default() as f64 * CHARACTER_WIDTH;
        RIGHT + 44.0 + longest.max(150.0)
    }

    fn position(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x_share, y_share) = (self.x.position(x), self.y.position(y));
        let position = (
            LEFT + x_share * PLOT_WIDTH,
            HEIGHT - BOTTOM - y_share * (HEIGHT - TOP - BOTTOM),
        );
        (position.0.is_finite() && position.1.is_finite()).then_some(position)
    }

    fn draw_grid(&self, svg: &mut String) {
        let (right, bottom) = (RIGHT, HEIGHT - BOTTOM);
        for value in self.y.minor_values() {
            let y = bottom - self.y.position(value) * (bottom - TOP);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"{FAINT}\"/>"
            );
        }
        for (value, text) in self.x.ticks(18) {
            let x = LEFT + self.x.position(value) * (right - LEFT);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#e6e6e6\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 18.0
            );
        }
        for (value, text) in self.y.ticks(9) {
            let y = bottom - self.y.position(value) * (bottom - TOP);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e6e6e6\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333333\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 14.0,
            self.x.label,
            (TOP + bottom) / 2.0,
            self.y.label
        );
    }

    fn draw_band(&self, svg: &mut String, series: &Series) {
        let colour = series.style.colour();
        let bounds = series.points.iter().zip(&series.band);
        let bounds = bounds.map(|(&(x, _), &(low, high))| {
            Some((self.position((x, low))?, self.position((x, high))?))
        });
        for part in split_at_gaps(bounds) {
            let upper = part.iter().map(|(_, high)| *high);
            let lower = part.iter().rev().map(|(low, _)| *low);
            let points = format_points(&upper.chain(lower).collect::<Vec<_>>());
            let _ = writeln!(
                svg,
                "<polygon points=\"{points}\" fill=\"{colour}\" opacity=\"0.18\"/>"
            );
        }
    }

    fn draw_line(&self, svg: &mut String, series: &Series) {
        let colour = series.style.colour();
        let dashes = series.style.dashes();
        let is_limit = matches!(series.style, Style::Limit(_));
        for mut positions in split_at_gaps(series.points.iter().map(|&point| self.position(point)))
        {
            if !is_limit {
                for (x, y) in &positions {
                    let _ = write!(
                        svg,
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{colour}\"/>"
                    );
                }
                svg.push('\n');
            } else if let [(x, y)] = positions[..] {
                positions = vec![
                    ((x - HALF_SINGLE_LINE).max(LEFT), y),
                    ((x + HALF_SINGLE_LINE).min(RIGHT), y),
                ];
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
                format_points(&positions)
            );
        }
    }

    /// Draws the names beside the ends of their lines. Moves names apart that are too close.
    fn draw_names(&self, svg: &mut String) {
        let mut names: Vec<_> = self
            .series
            .iter()
            .filter_map(|series| {
                let last = series
                    .points
                    .iter()
                    .rev()
                    .find_map(|&point| self.position(point))?;
                Some((last.1, series))
            })
            .collect();
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut ys: Vec<f64> = names.iter().map(|(y, _)| *y).collect();
        for index in 1..ys.len() {
            ys[index] = ys[index].max(ys[index - 1] + NAME_DISTANCE);
        }
        let overflow = ys
            .last()
            .map_or(0.0, |last| (last - (HEIGHT - BOTTOM)).max(0.0));
        if overflow > 0.0 {
            // The lowest name moves up to the axis and pushes the names above it up.
            let last = ys.len() - 1;
            ys[last] -= overflow;
            for index in (0..last).rev() {
                ys[index] = ys[index].min(ys[index + 1] - NAME_DISTANCE);
            }
        }
        for ((_, series), y) in names.iter().zip(ys) {
            let x = RIGHT + 10.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{x} {y:.1}h18\" stroke=\"{}\" stroke-width=\"2\"{}/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
                series.style.colour(),
                series.style.dashes(),
                x + 24.0,
                y + 4.0,
                series.style.text_colour(),
                escaped(&series.name)
            );
        }
    }
}

impl Style {
    fn colour(self) -> &'static str {
        match self {
            Self::Measured(number) => COLOURS[number % COLOURS.len()],
            Self::Limit(_) => GREY,
        }
    }

    fn dashes(self) -> String {
        match self {
            Self::Measured(_) => String::new(),
            Self::Limit(number) => {
                format!(" stroke-dasharray=\"{}\"", DASHES[number % DASHES.len()])
            }
        }
    }

    /// The colour of the name.
    fn text_colour(self) -> &'static str {
        match self {
            Self::Limit(_) => "#666666",
            Self::Measured(_) => self.colour(),
        }
    }
}

/// Splits a sequence at its gaps. A line across a size that was not measured would suggest a value.
fn split_at_gaps<T>(items: impl Iterator<Item = Option<T>>) -> Vec<Vec<T>> {
    let mut sections = vec![Vec::new()];
    for item in items {
        match (item, sections.last_mut()) {
            (Some(item), Some(section)) => section.push(item),
            _ => sections.push(Vec::new()),
        }
    }
    sections.retain(|section| !section.is_empty());
    sections
}

fn format_points(positions: &[(f64, f64)]) -> String {
    let texts = positions.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    texts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::axis::Scale;
    use super::*;

    fn chart(names: &[&str]) -> Chart {
        let points = vec![(8.0, 100.0), (4096.0, 900.0)];
        let values = |axis: fn(&(f64, f64)) -> f64| points.iter().map(axis).collect::<Vec<_>>();
        Chart {
            title: "a < b".into(),
            subtitle: String::new(),
            x: Axis::new(Scale::Bytes, "size", values(|point| point.0).into_iter()),
            y: Axis::new(
                Scale::Nanoseconds,
                "time",
                values(|point| point.1).into_iter(),
            ),
            series: names
                .iter()
                .enumerate()
                .map(|(number, name)| Series {
                    name: (*name).to_owned(),
                    style: Style::Measured(number),
                    points: points.clone(),
                    band: vec![(90.0, 110.0), (800.0, 1000.0)],
                })
                .collect(),
        }
    }

    #[test]
    fn every_line_is_drawn_with_its_band_and_its_name() {
        let svg = chart(&["one", "two & three"]).svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert!(svg.contains(">one<") && svg.contains(">two &amp; three<"));
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_missing_measurement_is_a_gap() {
        let mut chart = chart(&["one"]);
        let ys = [100.0, 200.0, f64::NAN, 800.0];
        let points = ys.iter().enumerate();
        chart.series[0].points = points
            .map(|(index, &y)| (8.0 * 4_f64.powi(index as i32), y))
            .collect();
        chart.series[0].band = ys.iter().map(|y| (y * 0.9, y * 1.1)).collect();
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert_eq!(svg.matches("<polygon").count(), 2, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    }

    #[test]
    fn names_of_lines_that_end_together_do_not_overlap() {
        let names: Vec<_> = (0..20).map(|number| format!("line {number}")).collect();
        let svg = chart(&names.iter().map(String::as_str).collect::<Vec<_>>()).svg();
        let name_y = |name: &str| -> f64 {
            let line = svg
                .lines()
                .find(|line| line.ends_with(&format!(">{name}</text>")));
            let (_, rest) = line.unwrap().split_once(" y=\"").unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let mut positions: Vec<_> = names.iter().map(|name| name_y(name)).collect();
        positions.sort_by(f64::total_cmp);
        assert!(
            positions
                .windows(2)
                .all(|pair| pair[1] - pair[0] > NAME_DISTANCE - 0.2)
        );
        assert!(positions[19] <= HEIGHT - BOTTOM + 5.0);
    }
}
