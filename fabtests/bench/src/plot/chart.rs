//! A chart with two axes, as SVG.

use std::fmt::Write as _;

use super::axis::Axis;
use crate::markup::escaped;

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
    /// The name, drawn at the right of the line.
    pub name: String,
    /// The style.
    pub style: Style,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Confidence interval of each point; as many as points, or none.
    pub band: Vec<(f64, f64)>,
}

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A measurement, with a colour of its own.
    Measured(usize),
    /// A limit of the machine, with dashes of its own.
    Limit(usize),
}

const HEIGHT: f64 = 480.0;
const LEFT: f64 = 84.0;
/// Length of the horizontal axis.
const ACROSS: f64 = 590.0;
const RIGHT: f64 = LEFT + ACROSS;
/// Width of a character of a name at most.
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
/// Half of the line that a limit of a single size has.
const STROKE: f64 = 12.0;
/// Distance of the names of lines that end close to each other.
const LINE: f64 = 15.0;

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
        self.grid(&mut svg);
        for series in &self.series {
            self.band(&mut svg, series);
        }
        for series in &self.series {
            self.line(&mut svg, series);
        }
        self.names(&mut svg);
        svg + "</svg>\n"
    }

    /// Width that fits the names beside the lines.
    fn width(&self) -> f64 {
        let names = self.series.iter().map(|series| series.name.chars().count());
        let longest = names.max().unwrap_or_default() as f64 * CHARACTER_WIDTH;
        RIGHT + 44.0 + longest.max(150.0)
    }

    fn position(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (across, up) = (self.x.at(x), self.y.at(y));
        let position = (
            LEFT + across * ACROSS,
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        );
        (position.0.is_finite() && position.1.is_finite()).then_some(position)
    }

    fn grid(&self, svg: &mut String) {
        let (right, bottom) = (RIGHT, HEIGHT - BOTTOM);
        for value in self.y.between() {
            let y = bottom - self.y.at(value) * (bottom - TOP);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"{FAINT}\"/>"
            );
        }
        for (value, text) in self.x.ticks(18) {
            let x = LEFT + self.x.at(value) * (right - LEFT);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#e6e6e6\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 18.0
            );
        }
        for (value, text) in self.y.ticks(9) {
            let y = bottom - self.y.at(value) * (bottom - TOP);
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

    fn band(&self, svg: &mut String, series: &Series) {
        let colour = series.style.colour();
        let bounds = series.points.iter().zip(&series.band);
        let bounds = bounds.map(|(&(x, _), &(low, high))| {
            Some((self.position((x, low))?, self.position((x, high))?))
        });
        for part in unbroken(bounds) {
            let upper = part.iter().map(|(_, high)| *high);
            let lower = part.iter().rev().map(|(low, _)| *low);
            let points = text_of(&upper.chain(lower).collect::<Vec<_>>());
            let _ = writeln!(
                svg,
                "<polygon points=\"{points}\" fill=\"{colour}\" opacity=\"0.18\"/>"
            );
        }
    }

    fn line(&self, svg: &mut String, series: &Series) {
        let colour = series.style.colour();
        let dashes = series.style.dashes();
        let is_limit = matches!(series.style, Style::Limit(_));
        for mut positions in unbroken(series.points.iter().map(|&at| self.position(at))) {
            if !is_limit {
                for (x, y) in &positions {
                    let _ = write!(
                        svg,
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{colour}\"/>"
                    );
                }
                svg.push('\n');
            } else if let [(x, y)] = positions[..] {
                positions = vec![((x - STROKE).max(LEFT), y), ((x + STROKE).min(RIGHT), y)];
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
                text_of(&positions)
            );
        }
    }

    /// The names are beside the ends of their lines, moved apart where these are too close.
    fn names(&self, svg: &mut String) {
        let mut names: Vec<_> = self
            .series
            .iter()
            .filter_map(|series| {
                let last = series
                    .points
                    .iter()
                    .rev()
                    .find_map(|&at| self.position(at))?;
                Some((last.1, series))
            })
            .collect();
        names.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut ys: Vec<f64> = names.iter().map(|(y, _)| *y).collect();
        for at in 1..ys.len() {
            ys[at] = ys[at].max(ys[at - 1] + LINE);
        }
        let over = ys
            .last()
            .map_or(0.0, |last| (last - (HEIGHT - BOTTOM)).max(0.0));
        if over > 0.0 {
            // The names move up again, from the bottom one.
            let last = ys.len() - 1;
            ys[last] -= over;
            for at in (0..last).rev() {
                ys[at] = ys[at].min(ys[at + 1] - LINE);
            }
        }
        for ((_, series), y) in names.iter().zip(ys) {
            let at = RIGHT + 10.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{at} {y:.1}h18\" stroke=\"{}\" stroke-width=\"2\"{}/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
                series.style.colour(),
                series.style.dashes(),
                at + 24.0,
                y + 4.0,
                series.style.dark(),
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

    /// The colour of text.
    fn dark(self) -> &'static str {
        match self {
            Self::Limit(_) => "#666666",
            Self::Measured(_) => self.colour(),
        }
    }
}

/// The parts between gaps. A line across a size that was not measured would suggest a value.
fn unbroken<T>(all: impl Iterator<Item = Option<T>>) -> Vec<Vec<T>> {
    let mut parts = vec![Vec::new()];
    for one in all {
        match (one, parts.last_mut()) {
            (Some(one), Some(part)) => part.push(one),
            _ => parts.push(Vec::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn text_of(positions: &[(f64, f64)]) -> String {
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
            x: Axis::over(Scale::Bytes, "size", values(|at| at.0).into_iter()),
            y: Axis::over(Scale::Nanoseconds, "time", values(|at| at.1).into_iter()),
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
            .map(|(at, &y)| (8.0 * 4_f64.powi(at as i32), y))
            .collect();
        chart.series[0].band = ys.iter().map(|y| (y * 0.9, y * 1.1)).collect();
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert_eq!(svg.matches("<polygon").count(), 2, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    }

    #[test]
    fn names_of_lines_that_end_together_do_not_lie_upon_each_other() {
        let names: Vec<_> = (0..20).map(|number| format!("line {number}")).collect();
        let svg = chart(&names.iter().map(String::as_str).collect::<Vec<_>>()).svg();
        let at = |name: &str| -> f64 {
            let line = svg
                .lines()
                .find(|line| line.ends_with(&format!(">{name}</text>")));
            let (_, rest) = line.unwrap().split_once(" y=\"").unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let mut positions: Vec<_> = names.iter().map(|name| at(name)).collect();
        positions.sort_by(f64::total_cmp);
        assert!(
            positions
                .windows(2)
                .all(|pair| pair[1] - pair[0] > LINE - 0.2)
        );
        assert!(positions[19] <= HEIGHT - BOTTOM + 5.0);
    }
}
